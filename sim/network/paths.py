"""What a path does to datagrams: it loses, delays, reorders and doubles them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["CLEAR", "Faults"]


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of one direction of a path. Shares lie between 0 and 1, times are microseconds.

    A datagram takes `delay_us` and up to `jitter_us` more. One that is reordered takes `late_us` on top, so
    that later ones pass it; one that is doubled arrives a second time, at a time of its own.
    """

    loss: float = 0.0
    delay_us: int = 200
    jitter_us: int = 0
    reordering: float = 0.0
    late_us: int = 5_000
    duplication: float = 0.0

    def arrivals(self, random: Random) -> list[int]:
        """After how many microseconds each copy of one datagram arrives; empty: it is lost."""
        if random.random() < self.loss:
            return []
        copies = 2 if random.random() < self.duplication else 1
        return [self._delay(random) for _ in range(copies)]

    def _delay(self, random: Random) -> int:
        late = self.late_us if random.random() < self.reordering else 0
        return self.delay_us + random.randint(0, self.jitter_us) + late


CLEAR: Final = Faults()
"""A path of 0.2 ms without faults."""
