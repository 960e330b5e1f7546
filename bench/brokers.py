"""What is measured: a broker, or a network of brokers, on CPUs of its own and on free loopback ports, and
gone afterwards."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bench.plan import Plan
from bench.process import descendants
from bench.transport import Address, NoAnswer, Publisher, Subscriber

__all__ = [
    "Broker",
    "Running",
    "Started",
    "announcement",
    "ended",
    "free_port",
    "launch",
    "running",
    "wait_for_port",
]

_READY_S: Final = 15.0
_END_S: Final = 5.0
_LOG: Final = "broker.log"

Started = tuple[subprocess.Popen[bytes], Address]
"""Its first process, and where its clients come to."""


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that serves: all its processes."""

    pids: tuple[int, ...]
    address: Address


class Broker(Protocol):
    """A kind of broker, and the load for it."""

    @property
    def name(self) -> str:
        """As the table calls it."""

    def version(self) -> str | None:
        """None: it is not on this machine."""

    def start(self, directory: Path) -> Started:
        """Starts it and waits until it serves; what it writes goes into the directory. Raises NoAnswer."""

    def publisher(self, address: Address, plan: Plan) -> Publisher:
        """Connects the publishing side."""

    def subscriber(self, address: Address, plan: Plan) -> Subscriber:
        """Connects the subscribing side."""


@contextmanager
def running(broker: Broker, directory: Path, cpus: frozenset[int]) -> Iterator[Running]:
    """Runs a broker on these CPUs as long as the context lasts."""
    with _on(cpus):
        process, address = broker.start(directory)
    try:
        yield Running((process.pid, *descendants(process.pid)), address)
    finally:
        ended(process)


@contextmanager
def launch(directory: Path, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process, and ends it if it does not come to serve: if the context ends with an exception. What
    it says is in its `stdout`, its complaints are in the directory."""
    with (directory / _LOG).open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    try:
        yield process
    except BaseException:
        ended(process)
        raise


def announcement(process: subprocess.Popen[bytes]) -> str:
    """The first line that a process says. Raises NoAnswer where none comes in time."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _READY_S)
    line = process.stdout.readline().decode().strip() if ready else ""
    if not line:
        raise NoAnswer("the broker did not say that it is ready")
    return line


def free_port() -> int:
    """A TCP port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_for_port(process: subprocess.Popen[bytes], address: Address) -> None:
    """Returns once connections are accepted there. Raises NoAnswer where they are not in time."""
    deadline = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(address, 1.0).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise NoAnswer(f"nothing listens at {address[0]}:{address[1]}")


@contextmanager
def _on(cpus: frozenset[int]) -> Iterator[None]:
    """What is started meanwhile keeps to these CPUs, with its threads and children, and sees no others."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def ended(process: subprocess.Popen[bytes]) -> None:
    """Asks it to end; where it does not, ends it and all that it started."""
    family = descendants(process.pid)
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
