"""What is measured: a broker, or a network of brokers, on CPUs of its own and on free loopback ports, and
gone afterwards."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bench.plan import Plan
from bench.transport import Address, Publisher, Subscriber
from hbroker.bench.launching import NoAnswer, ended, on_cpus
from hbroker.bench.process import descendants

__all__ = [
    "Broker",
    "NativeLoadAlone",
    "Running",
    "Started",
    "running",
    "wait_for_port",
]

_READY_S: Final = 15.0

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

    @property
    def transport(self) -> str:
        """What its clients speak, as the load's `--transport` has it."""

    def version(self) -> str | None:
        """None: it is not on this machine."""

    def start(self, directory: Path) -> Started:
        """Starts it and waits until it serves; what it writes goes into the directory. Raises NoAnswer."""

    def publisher(self, address: Address, plan: Plan) -> Publisher:
        """Connects the publishing side."""

    def subscriber(self, address: Address, plan: Plan) -> Subscriber:
        """Connects the subscribing side."""


class NativeLoadAlone:
    """A broker whose language the load in Python does not speak."""

    def publisher(self, address: Address, plan: Plan) -> Publisher:
        raise NoAnswer("there is no load in Python for it")

    def subscriber(self, address: Address, plan: Plan) -> Subscriber:
        raise NoAnswer("there is no load in Python for it")


@contextmanager
def running(broker: Broker, directory: Path, cpus: frozenset[int]) -> Iterator[Running]:
    """Runs a broker on these CPUs as long as the context lasts."""
    with on_cpus(cpus):
        process, address = broker.start(directory)
    try:
        yield Running((process.pid, *descendants(process.pid)), address)
    finally:
        ended(process)


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
