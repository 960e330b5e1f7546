"""What a path does to datagrams: it loses, delays, reorders and doubles them, and carries only so much."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["CLEAR", "ETHERNET", "Bottleneck", "Faults"]

ETHERNET: Final = 1_472
"""Bytes of the largest UDP datagram that Ethernet carries over IPv4."""
LARGEST: Final = 65_507
"""Bytes of the largest UDP datagram over IPv4."""


class Bottleneck:
    """A line of limited bandwidth and the queue before it. What finds the queue full is dropped (tail drop).

    It serves one direction. All paths whose faults name the same bottleneck share it.
    """

    def __init__(self, bandwidth_bps: int, queue_bytes: int) -> None:
        self.bandwidth_bps = bandwidth_bps
        self.queue_bytes = queue_bytes
        self.dropped = 0
        self._free_at = 0.0

    def departure(self, now: int, size: int) -> int | None:
        """When a datagram that comes now is through, in microseconds; None: it is dropped."""
        begins = max(self._free_at, float(now))
        waiting = (begins - now) * self.bandwidth_bps / 8e6
        if waiting + size > self.queue_bytes:
            self.dropped += 1
            return None
        self._free_at = begins + size * 8e6 / self.bandwidth_bps
        return round(self._free_at)


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of one direction of a path. Shares lie between 0 and 1, times are microseconds.

    A datagram takes `delay_us` and up to `jitter_us` more, once it is through the `bottleneck`. One that is
    reordered takes `late_us` on top, so that later ones pass it; one that is doubled arrives a second time,
    at a time of its own. One of more than `mtu` bytes, without the headers below it, vanishes. One that
    suffers `corruption` arrives with a bit turned over; UDP's checksum finds it, and nobody reads it.
    """

    loss: float = 0.0
    delay_us: int = 200
    jitter_us: int = 0
    reordering: float = 0.0
    late_us: int = 5_000
    duplication: float = 0.0
    corruption: float = 0.0
    mtu: int = LARGEST
    bottleneck: Bottleneck | None = None

    def arrivals(self, random: Random, now: int, size: int) -> list[int]:
        """When each copy of a datagram of so many bytes, sent now, arrives; empty: it is lost."""
        if random.random() < self.loss or size > self.mtu:
            return []
        copies = 2 if random.random() < self.duplication else 1
        through = now if self.bottleneck is None else self.bottleneck.departure(now, size)
        return [] if through is None else [through + self._delay(random) for _ in range(copies)]

    def damages(self, random: Random) -> bool:
        """Whether one copy arrives damaged."""
        return self.corruption > 0 and random.random() < self.corruption

    def _delay(self, random: Random) -> int:
        late = self.late_us if random.random() < self.reordering else 0
        return self.delay_us + random.randint(0, self.jitter_us) + late


CLEAR: Final = Faults()
"""A path of 0.2 ms without faults."""
