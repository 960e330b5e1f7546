"""The interface of what is measured: a kind of broker, or of a network of brokers."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Final, Protocol

from hbroker.bench.brokers import Started
from hbroker.bench.launching import NoAnswer
from hbroker.bench.plan import Address

_READY_S: Final = 15.0


class Broker(Protocol):
    """A kind of broker, which can be started."""

    @property
    def name(self) -> str:
        """Its name in the tables."""

    @property
    def transport(self) -> str:
        """The protocol of its clients: `--transport` of the load."""

    def version(self) -> str | None:
        """Its version; None: it is not installed."""

    def start(self, directory: Path) -> Started:
        """Starts it, and waits until it serves. It writes its files into the directory. Raises NoAnswer."""


def wait_for_port(process: subprocess.Popen[bytes], address: Address) -> None:
    """Returns when connections are accepted at this address. Raises NoAnswer if they are not in time."""
    deadline = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(address, 1.0).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise NoAnswer(f"nothing listens at {address[0]}:{address[1]}")
