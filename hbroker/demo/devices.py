"""The devices of the house: simulated ones in the rooms, and this machine in the office.

A simulated value is an Ornstein-Uhlenbeck process in steps: each step moves it a little at random and draws
it back to its usual value. So it wanders plausibly and stays bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["Device", "Walk", "machine", "rooms"]

_FRAME_BYTES: Final = 4_000


@dataclass(frozen=True, slots=True)
class Device:
    """Publishes the result of `read` on a topic, every `period` seconds."""

    topic: str
    period: float
    read: Callable[[], bytes]
    qos: int = 0
    retain: bool = False


@dataclass(slots=True)
class Walk:
    """A value that wanders around `usual` within [`least`, `most`]. `step`: the standard deviation of a
    step."""

    random: Random
    usual: float
    step: float
    least: float = 0.0
    most: float = 100.0
    digits: int = 1
    _value: float | None = None

    def __call__(self) -> bytes:
        value = self.usual if self._value is None else self._value
        value += 0.1 * (self.usual - value) + self.random.gauss(0.0, self.step)
        self._value = min(max(value, self.least), self.most)
        return f"{self._value:.{self.digits}f}".encode()


def rooms(random: Random) -> tuple[Device, ...]:
    """The simulated devices."""

    def walk(topic: str, usual: float, step: float, period: float = 0.5, qos: int = 0) -> Device:
        return Device(f"home/{topic}", period, Walk(random, usual, step, 0.0, 10 * usual), qos, qos > 0)

    def either(topic: str, values: Sequence[bytes], period: float) -> Device:
        return Device(f"home/{topic}", period, lambda: random.choice(values), 1, True)

    return (
        walk("kitchen/temperature", 21.5, 0.1, qos=1),
        walk("kitchen/oven/temperature", 180.0, 1.5, 0.25),
        walk("kitchen/fridge/temperature", 4.0, 0.1),
        walk("kitchen/power", 640.0, 40.0, 0.1),
        walk("livingroom/temperature", 20.5, 0.1, qos=1),
        walk("livingroom/light", 300.0, 10.0, 0.2),
        either("livingroom/blinds", (b"up", b"down", b"half"), 1.5),
        walk("bedroom/temperature", 18.0, 0.1, qos=1),
        walk("bedroom/humidity", 48.0, 0.4, 1.0),
        either("bedroom/lamp", (b"on", b"off"), 2.0),
        walk("outside/temperature", 7.5, 0.2, qos=1),
        walk("outside/wind", 12.0, 1.0, 0.2),
        either("outside/gate", (b"open", b"closed"), 2.5),
        either("outside/securitycams/front/motion", (b"yes", b"no"), 1.0),
        Device("home/outside/securitycams/front/frame", 0.5, lambda: random.randbytes(_FRAME_BYTES)),
        Device("home/outside/securitycams/back/frame", 0.5, lambda: random.randbytes(_FRAME_BYTES)),
    )


def machine() -> tuple[Device, ...]:
    """The readings of this machine: load, processor, memory, disk and network."""
    import psutil

    psutil.cpu_percent()  # the first call only begins the measurement
    sent = _Rate(lambda: psutil.net_io_counters().bytes_sent)
    received = _Rate(lambda: psutil.net_io_counters().bytes_recv)
    written = _Rate(lambda: getattr(psutil.disk_io_counters(), "write_bytes", 0))

    def reading(
        name: str, read: Callable[[], float], digits: int, period: float = 1.0, qos: int = 0
    ) -> Device:
        topic = f"home/office/computer/{name}"
        return Device(topic, period, lambda: f"{read():.{digits}f}".encode(), qos, qos > 0)

    return (
        reading("load", lambda: psutil.getloadavg()[0], 2, qos=1),
        reading("cpu/percent", lambda: psutil.cpu_percent(), 1, 0.5),
        reading("memory/percent", lambda: psutil.virtual_memory().percent, 1, qos=1),
        reading("disk/percent", lambda: psutil.disk_usage("/").percent, 1, 2.0, 1),
        reading("disk/written_bytes_per_s", written, 0),
        reading("network/sent_bytes_per_s", sent, 0),
        reading("network/received_bytes_per_s", received, 0),
    )


class _Rate:
    """The growth of a counter per second, since the last call."""

    def __init__(self, read: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._count = read()
        self._at = clock()

    def __call__(self) -> float:
        count, now = self._read(), self._clock()
        elapsed, grown = now - self._at, count - self._count
        self._count, self._at = count, now
        return max(grown, 0) / elapsed if elapsed > 0 else 0.0
