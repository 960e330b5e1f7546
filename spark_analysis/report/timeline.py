"""The time axis of the report: windows of one length in sequence, with or without telemetry.

All charts over time share it. So a moment has the same place in each of them, and a time without telemetry is
as wide as it was long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from .rows import Rows


@dataclass(frozen=True)
class Timeline:
    """From the first window to the last. `count`: the number of windows, with those without telemetry.
    `gaps`: the begin and end of times without telemetry, as shares of the axis."""

    begin: datetime
    window: timedelta
    count: int
    gaps: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, rows: Rows, window_s: int) -> Timeline:
        """The axis of rows with a `window_start`. There is at least one row."""
        times = {row["window_start"] for row in rows}
        begin, window = min(times), timedelta(seconds=window_s)
        count = (max(times) - begin) // window + 1
        there = sorted((time - begin) // window for time in times)
        gaps = tuple(
            ((last + 1) / count, following / count)
            for last, following in pairwise(there)
            if following > last + 1
        )
        return cls(begin, window, count, gaps)

    @property
    def end(self) -> datetime:
        """The end of the last window."""
        return self.begin + self.count * self.window

    def column(self, time: datetime) -> int:
        """The index of the window that begins at this time. The first is 0."""
        return (time - self.begin) // self.window

    def windows(self) -> Iterator[datetime]:
        """The begin of each window."""
        return (self.begin + index * self.window for index in range(self.count))

    def middle(self, column: int) -> float:
        """The middle of a window, from 0 (the begin of the axis) to 1 (its end)."""
        return (column + 0.5) / self.count

    def labels(self) -> Sequence[datetime]:
        """The labelled times: begin, middle and end."""
        return (self.begin, self.begin + (self.end - self.begin) / 2, self.end)
