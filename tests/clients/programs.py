"""Runs both pairs of programs: mosquitto's with mosquitto, and hpub and hsub with a root node, each on a
free port."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator
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
    """The result of a program: exit code and output."""

    code: int
    output: bytes
    errors: str

    @property
    def complaint(self) -> str:
        """The first line with an error on standard error, with both programs' names replaced alike."""
        lines = [line for line in self.errors.splitlines() if line.strip()]
        return re.sub(r"mosquitto_(pub|sub)", r"h\1", lines[0]) if lines else ""


class Family(Protocol):
    """A publisher, a subscriber and their broker."""

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command line of "pub" or "sub", with the flags that name the broker."""

    def await_subscriber(self, client_id: str, topic: str) -> None:
        """Waits until the broker has the client's subscription, which matches the topic."""

    def await_acknowledgements(self, client_ids: Collection[str], count: int) -> None:
        """Waits until these clients together have acknowledged `count` messages of a publisher at QoS 1."""


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

    def await_acknowledgements(self, client_ids: Collection[str], count: int) -> None:
        answer = re.compile(f"Received PUBACK from ({'|'.join(client_ids)}) ")
        until(lambda: len(answer.findall(self._logged())) >= count, f"{count} answers", PATIENCE)

    def _logged(self) -> str:
        return self._log.read_text("utf-8", "replace")


class HBrokerPrograms:
    """hpub, hsub and a root node."""

    def __init__(self, port: int, client: sync.Client) -> None:
        self._port = port
        self._client = client

    def command(self, program: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", f"hbroker.clients.h{program}", "-p", str(self._port), *arguments]

    def await_subscriber(self, client_id: str, topic: str) -> None:
        self.await_subscribers(1, topic)

    def await_acknowledgements(self, client_ids: Collection[str], count: int) -> None:
        """Does nothing: the publisher has waited for the acknowledgements (§7.3)."""

    def await_subscribers(self, count: int, topic: str) -> None:
        """Waits until `count` subscriptions match the topic."""
        until(
            lambda: self._client.resolve(topic, trace=True).subscriptions >= count,
            f"{count} subscribed to {topic}",
            PATIENCE,
        )


@dataclass(frozen=True)
class Running:
    """A program that runs meanwhile."""

    process: subprocess.Popen[bytes]

    def __call__(self) -> Ended:
        """Waits for its end."""
        output, errors = self.process.communicate(timeout=PATIENCE)
        return Ended(self.process.returncode, output, errors.decode("utf-8", "replace"))

    def stop(self) -> Ended:
        """Asks it to end, and waits for its end."""
        self.process.terminate()
        return self()


@contextmanager
def running(command: list[str]) -> Iterator[Running]:
    """Runs a program meanwhile, and kills it at the end."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        cwd=PROJECT,
    ) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


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
    """A root node on a free port, and its address."""
    with node_up() as node:
        yield node.address


def _await_port(port: int) -> None:
    def is_listening() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    until(is_listening, "mosquitto listens", PATIENCE)
