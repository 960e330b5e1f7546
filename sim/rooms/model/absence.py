"""When a device is online: an alternating renewal process with exponential times."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ..scenario.settings import Absence

__all__ = ["stays"]


def stays(random: Random, absence: Absence) -> Iterator[tuple[float, float]]:
    """The begin and end of each time for which it is online, in seconds. The first begins at 0."""
    at = 0.0
    while True:
        until = at + random.expovariate(1 / absence.up_s)
        yield at, until
        at = until + random.expovariate(1 / absence.down_s)
