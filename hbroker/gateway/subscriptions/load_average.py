"""Load averages as mosquitto has them: events a minute, over the last 1, 5 and 15 minutes.

Each is an exponentially weighted moving average of the counts of the intervals, as is the load of a Unix
system.
"""

from __future__ import annotations

from math import exp
from typing import Final

__all__ = ["PERIODS", "LoadAverage"]

PERIODS: Final = {"1min": 60.0, "5min": 300.0, "15min": 900.0}
"""Seconds, by the last level of the topic."""


class LoadAverage:
    """The three averages of one counter. The counter only rises."""

    def __init__(self) -> None:
        self._last = 0
        self.per_minute: dict[str, float] = dict.fromkeys(PERIODS, 0.0)

    def update(self, count: int, seconds: float) -> None:
        """Adds the counter's value, `seconds` after the last update."""
        if seconds <= 0:
            return
        rate = max(count - self._last, 0) * 60.0 / seconds
        self._last = count
        for name, period in PERIODS.items():
            weight = exp(-seconds / period)
            self.per_minute[name] = rate + weight * (self.per_minute[name] - rate)
