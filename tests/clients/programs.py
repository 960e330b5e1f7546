"""Running both pairs of programs: mosquitto's against mosquitto, ours against a root node, each on a free
port.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hbroker import sync
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE, PROJECT, environment
from tests.product.node import node_up
from tests.waiting import until

ENVIRONMENT = {**environment(), "TZ": "UTC"}


@dataclass(frozen=True)
class Ended:
    """What a program left behind."""

    code: int
    output: bytes
    errors: str

    @property
    def complaint(self) -> str:
        """The first line on standard error that says something, with the programs' names made alike."""
        lines = [line for line in self.errors.splitlines() if line.strip()]
        return re.sub(r"mosquitto_(pub|sub)", r"h\1", lines[0]) if lines else ""


class Family(Protocol):
    """A publisher, a subscriber and their broker."""

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command line of "pub" or "sub", with the flags that lead to the broker."""

    def await_subscriber(self, client_id: str, topic: str) -> None:
        """Returns once the broker has the client's subscription, which matches the topic."""


class Mosquitto:
    """mosquitto and its clients."""

    def __init__(self, port: int, log: Path) -> None:
        self._port = port
        self._log = log

    def command(self, program: str, *arguments: str) -> list[str]:
        return [f"mosquitto_{program}", "-p", str(self._port), *arguments]

    def await_subscriber(self, client_id: str, topic: str) -> None:
        suback = f"Sending SUBACK to {client_id}\n"
        until(lambda: suback in self._logged(), f"{client_id} has subscribed", PATIENCE, found=self._logged)

    def _logged(self) -> str:
        return self._log.read_text("utf-8", "replace")


class Ours:
    """hpub, hsub and a root node."""

    def __init__(self, port: int, client: sync.Client) -> None:
        self._port = port
        self._client = client

    def command(self, program: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", f"hbroker.clients.h{program}", "-p", str(self._port), *arguments]

    def await_subscriber(self, client_id: str, topic: str) -> None:
        self.await_subscribers(1, topic)

    def await_subscribers(self, count: int, topic: str) -> None:
        """Returns once so many subscriptions match the topic."""
        until(
            lambda: self._client.resolve(topic, trace=True).subscriptions >= count,
            f"{count} subscribed to {topic}",
            PATIENCE,
        )


@contextmanager
def running(command: list[str]) -> Iterator[Callable[[], Ended]]:
    """Runs a program beside; what is yielded waits for its end, and leaving ends it."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        cwd=PROJECT,
    ) as process:
        try:
            yield lambda: _finish(process)
        finally:
            process.kill()


def _finish(process: subprocess.Popen[bytes]) -> Ended:
    output, errors = process.communicate(timeout=PATIENCE)
    return Ended(process.returncode, output, errors.decode("utf-8", "replace"))


def run(command: list[str], input: bytes = b"") -> Ended:
    """Runs a program to its end."""
    done = subprocess.run(
        command, input=input, capture_output=True, timeout=PATIENCE, env=ENVIRONMENT, cwd=PROJECT, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


@contextmanager
def mosquitto(directory: Path) -> Iterator[Mosquitto]:
    """A broker with a configuration of its own."""
    broker = need_mosquitto()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = directory / "mosquitto.log"
    file = directory / "mosquitto.conf"
    file.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nlog_type all\nlog_dest stderr\n"
    )
    with log.open("wb") as errors, subprocess.Popen([broker, "-c", str(file)], stderr=errors) as process:
        try:
            _await_port(port)
            yield Mosquitto(port, log)
        finally:
            process.terminate()


@contextmanager
def root_node() -> Iterator[tuple[str, int]]:
    """A root node on a free port; its address."""
    with node_up() as node:
        yield node.address


def _await_port(port: int) -> None:
    def is_listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(is_listening, "mosquitto listens", PATIENCE)
