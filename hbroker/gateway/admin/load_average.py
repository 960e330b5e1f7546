"""Load averages as mosquitto has them: how much a minute, over the last 1, 5 and 15 minutes.

An exponentially weighted mean of what was counted in each interval, as the load of a Unix system is.
"""

from __future__ import annotations

from math import exp
from typing import Final

__all__ = ["PERIODS", "LoadAverage"]

PERIODS: Final = {"1min": 60.0, "5min": 300.0, "15min": 900.0}
"""In seconds, by the last level of their topics."""


class LoadAverage:
    """The three means of one counter, which only rises."""

    def __init__(self) -> None:
        self._last = 0
        self.per_minute: dict[str, float] = dict.fromkeys(PERIODS, 0.0)

    def update(self, count: int, seconds: float) -> None:
        """The counter's value, so many seconds after the last."""
        if seconds <= 0:
            return
        rate = max(count - self._last, 0) * 60.0 / seconds
        self._last = count
        for name, period in PERIODS.items():
            weight = exp(-seconds / period)
            self.per_minute[name] = rate + weight * (self.per_minute[name] - rate)
