"""What the sections share: the rows of small tables, how roles are called, tables and lines made of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from . import charts
from .markup import Content, Markup, tag

Row = Mapping[str, Any]
Rows = Sequence[Row]
Tables = Mapping[str, list[dict[str, Any]]]

NODES_SHOWN: Final = 40
LISTED: Final = 12
ROLES: Final = {"node": "Owners", "gateway": "Gateways"}


def of_role(rows: Rows, role: str) -> Row | None:
    """The row of a role, in a table that has one for each."""
    return next((row for row in rows if row["role"] == role), None)


def title_of(role: str) -> str:
    """What a role is called."""
    return ROLES.get(role, role)


def table(header: Sequence[str] | None, body: Sequence[Sequence[Content]], *, numbers: bool = True) -> Markup:
    """A table that scrolls by itself where it is too wide; figures to the right."""

    def cell(content: Content, index: int) -> Markup:
        is_figure = numbers and index > 0 and not isinstance(content, Markup)
        return tag("td", content, class_="figure" if is_figure else None)

    rows = [tag("tr", [cell(content, i) for i, content in enumerate(row)]) for row in body]
    head = tag("thead", tag("tr", [tag("th", name) for name in header])) if header else Markup("")
    return tag("div", tag("table", [head, tag("tbody", rows)]), class_="table")


def over_time(
    rows: Rows, lines: Mapping[str, tuple[str, str]], ticks: Sequence[tuple[float, str]], *, log: bool = False
) -> Markup:
    """Lines over time, each by its name: of which role, from which column."""
    times = sorted({row["window_start"] for row in rows})
    if not times:
        return tag("p", "nothing was measured", class_="none")
    width = max(1, len(times) - 1)
    drawn = []
    for name, (role, column) in lines.items():
        values = {row["window_start"]: row[column] for row in rows if row["role"] == role}
        if values:
            points = [(index / width, values.get(time)) for index, time in enumerate(times)]
            drawn.append(charts.Line(name, points))
    return charts.lines_over_time(drawn, times, ticks, log=log)
