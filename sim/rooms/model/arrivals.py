"""Arrival processes: endless, ordered times in seconds since the beginning.

Each process has its own random generator, so that one device's events do not depend on another's.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Final

from ..scenario.settings import Frames, Pattern, Periodic, Poisson

__all__ = ["DAY_S", "arrivals", "is_day"]

DAY_S: Final = 86_400.0
_MORNING_S, _EVENING_S = 7 * 3600.0, 22 * 3600.0
_FRAME_JITTER: Final = 0.02


def arrivals(random: Random, pattern: Pattern, clock_s: float = 0.0) -> Iterator[float]:
    """When a device with this pattern publishes. `clock_s`: the time of day at the beginning, in seconds."""
    match pattern:
        case Periodic():
            return _periodic(random, pattern, clock_s)
        case Frames(per_s=per_s):
            return _periodic(random, Periodic(1 / per_s, _FRAME_JITTER), clock_s)
        case Poisson(burst=None):
            return _poisson(random, pattern, clock_s)
        case Poisson():
            return _bursts(random, pattern, clock_s)


def is_day(clock_s: float) -> bool:
    """Whether it is day: from 7 to 22 o'clock."""
    return _MORNING_S <= clock_s % DAY_S < _EVENING_S


def _periodic(random: Random, pattern: Periodic, clock_s: float) -> Iterator[float]:
    true = pattern.every_s * (1 + random.gauss(0.0, pattern.drift_ppm * 1e-6))
    phase = -clock_s % pattern.every_s if pattern.aligned else random.random() * pattern.every_s
    width = pattern.jitter * pattern.every_s
    for n in count():
        yield phase + n * true + width * random.random()


def _poisson(random: Random, pattern: Poisson, clock_s: float) -> Iterator[float]:
    """Thinning: events at the higher rate, of which those of the hours with the lower rate are left out at
    random."""
    highest = max(1.0, pattern.at_night)
    at = 0.0
    while True:
        at += random.expovariate(pattern.per_hour / 3600 * highest)
        factor = 1.0 if is_day(clock_s + at) else pattern.at_night
        if random.random() * highest < factor:
            yield at


def _bursts(random: Random, pattern: Poisson, clock_s: float) -> Iterator[float]:
    """A Poisson process of bursts, which may overlap."""
    burst = pattern.burst
    assert burst is not None, "or there are none"
    goes_on = 1 - 1 / burst.size
    waiting: list[float] = []
    for first in _poisson(random, pattern, clock_s):
        while waiting and waiting[0] <= first:
            yield heappop(waiting)
        yield first
        at = first
        while random.random() < goes_on:
            at += random.expovariate(1 / burst.every_s)
            heappush(waiting, at)
