"""When an interval was, what it cost, and what the decisions know at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hbroker.runtime.process_usage import resident_bytes

__all__ = ["Facts", "IntervalClock", "Sample"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decisions know at the end of an interval. `parent`: the parent's name; None: at the root, or
    unknown yet. `subtrees`: the subtrees that the node serves, without those below `$SYS`."""

    address: str
    parent: str | None = None
    subtrees: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One interval. `at`: its begin in microseconds since the Unix epoch, by the wall clock, which may step.
    `seconds`: its length, by a monotonic clock. `cpu_s`: CPU time of all threads, in seconds. `rss_bytes`:
    resident memory at its end."""

    at: int
    seconds: float
    cpu_s: float
    rss_bytes: int


class IntervalClock:
    """Measures intervals without gaps between them. `wall`: microseconds since the Unix epoch. `steady`:
    seconds."""

    def __init__(
        self,
        wall: Callable[[], int] = lambda: time.time_ns() // 1000,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self.began = self._at = wall()
        """When the first interval began, in microseconds since the Unix epoch."""
        self._since = steady()
        self._cpu_s = 0.0

    def sample(self) -> Sample:
        """Ends an interval and begins the next. Returns the one that ended."""
        at, since, cpu_s = self._wall(), self._steady(), time.process_time()
        sample = Sample(self._at, since - self._since, cpu_s - self._cpu_s, resident_bytes())
        self._at, self._since, self._cpu_s = at, since, cpu_s
        return sample
