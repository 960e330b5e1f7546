"""The faults of a path: it loses, delays, reorders and duplicates datagrams, and has a bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["CLEAR", "ETHERNET", "LARGEST", "Bottleneck", "Faults"]

ETHERNET: Final = 1_472
"""The largest UDP payload that Ethernet carries over IPv4, in bytes."""
LARGEST: Final = 65_507
"""The largest UDP payload over IPv4, in bytes."""


class Bottleneck:
    """A line of limited bandwidth, and the queue before it, with tail drop.

    It serves one direction. All paths whose faults name the same bottleneck share it.
    """

    def __init__(self, bandwidth_bps: int, queue_bytes: int) -> None:
        self.bandwidth_bps = bandwidth_bps
        self.queue_bytes = queue_bytes
        self.dropped = 0
        self._free_at = 0.0

    def departure(self, now: int, size: int) -> int | None:
        """The time in microseconds at which a datagram that arrives now has left the line; None: it is
        dropped."""
        begins = max(self._free_at, float(now))
        waiting = (begins - now) * self.bandwidth_bps / 8e6
        if waiting + size > self.queue_bytes:
            self.dropped += 1
            return None
        self._free_at = begins + size * 8e6 / self.bandwidth_bps
        return round(self._free_at)


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of one direction of a path. Shares are between 0 and 1, times are in microseconds.

    A datagram takes `delay_us` and up to `jitter_us` more, after the `bottleneck`. A reordered one takes
    `late_us` more, so that later ones overtake it. A duplicated one arrives a second time, at another time.
    One of more than `mtu` bytes, without the headers below it, is lost. `corruption` flips a bit; UDP's
    checksum finds that, and the datagram is discarded.
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
        """The arrival times of each copy of a datagram of `size` bytes that is sent now; empty: it is
        lost."""
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
