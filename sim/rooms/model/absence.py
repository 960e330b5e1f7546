"""Whether a device is there: an alternating renewal process, both times exponential."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ..scenario.settings import Absence

__all__ = ["stays"]


def stays(random: Random, absence: Absence) -> Iterator[tuple[float, float]]:
    """(from, until) of each time that it is there, in seconds since the beginning, when it is."""
    at = 0.0
    while True:
        until = at + random.expovariate(1 / absence.up_s)
        yield at, until
        at = until + random.expovariate(1 / absence.down_s)
