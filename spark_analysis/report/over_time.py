"""Lines over time from the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import charts
from .markup import Markup, tag
from .rows import Rows
from .timeline import Timeline


def over_time(
    rows: Rows,
    timeline: Timeline,
    lines: Mapping[str, tuple[str, str]],
    ticks: Sequence[tuple[float, str]],
    *,
    log: bool = False,
) -> Markup:
    """Lines over time, by name: each of one role, from one column. A line has a gap at a window without a row
    or value."""
    if not rows:
        return tag("p", "nothing was measured", class_="none")
    drawn = []
    for name, (role, column) in lines.items():
        values = {row["window_start"]: row[column] for row in rows if row["role"] == role}
        if values:
            points = [
                (timeline.middle(index), values.get(time)) for index, time in enumerate(timeline.windows())
            ]
            drawn.append(charts.Line(name, points))
    return charts.lines_over_time(drawn, timeline, ticks, log=log)
