"""The brokers that are measured: each one process of its own, pinned, on a free loopback port, and gone afterwards.

No peer is handicapped: mosquitto gets tcp_nodelay and queues without a limit, and does not keep messages on disk.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bench.transport import Address, Publisher, Subscriber

__all__ = ["BROKERS", "Broker", "Hbroker", "Mosquitto"]

_READY_S: Final = 15.0
_END_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that serves."""

    pid: int
    address: Address


class Broker(Protocol):
    """A kind of broker."""

    name: str

    def version(self) -> str | None:
        """Its version; None: it is not here."""

    def run(self, directory: Path, cpus: frozenset[int]) -> subprocess.Popen[bytes]:
        """Starts it; what it writes goes into the directory."""

    def wait_ready(self, process: subprocess.Popen[bytes], directory: Path) -> Address:
        """Where it serves, once it does. Raises NoAnswer."""

    def publisher(self, address: Address, pairs: int, qos: int) -> Publisher:
        """Load for it."""

    def subscriber(self, address: Address, pairs: int, qos: int) -> Subscriber:
        """Load for it."""
