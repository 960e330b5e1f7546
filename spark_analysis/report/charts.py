"""Charts, drawn as SVG and positioned boxes without a library.

They take a few kilobytes inlined, and follow the page's colours, light and dark. Marks are stretched to the
available width. Text is not stretched, because it is HTML beside the SVG. So a chart is as legible on a
telephone as on a desktop. The meaning of a mark is in its `data-tip`, which the page's script shows at a
touch or under the pointer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from .markup import Markup, moment, tag
from .rows import Rows
from .timeline import Timeline

HEAT_LEVELS: Final = 12
COLOURS: Final = 8
"""Nodes with a colour of their own. The others share one."""


@dataclass(frozen=True)
class Cell:
    """One window of one row of a heat map. `level`: from 0 to 1."""

    column: int
    level: float
    tip: str


@dataclass(frozen=True)
class Box:
    """A subtree in an icicle. `left` and `width` are shares of the whole width."""

    depth: int
    left: float
    width: float
    label: str
    tip: str
    colour: int


def heat_map(rows: Mapping[str, Sequence[Cell]], timeline: Timeline) -> Markup:
    """Rows of coloured cells over time, each beside its name. A row is hatched where it has no cell."""
    lines = [
        tag(
            "div",
            [tag("span", name, class_="name", title=name), _strip(cells, timeline.count)],
            class_="heat-row",
        )
        for name, cells in rows.items()
    ]
    axis = tag("div", [tag("span", "", class_="name"), time_axis(timeline)], class_="heat-row")
    return tag("div", [*lines, axis], class_="heat")


def heat_legend(low: str, high: str, *, has_gaps: bool) -> Markup:
    """The legend of a heat map's colours."""
    steps = [tag("i", class_=f"h{level}") for level in range(HEAT_LEVELS)]
    ramp = [low, " ", tag("span", steps, class_="ramp"), " ", high]
    return tag("p", [*ramp, *(_key_of_gaps() if has_gaps else ())], class_="legend")


def icicle(boxes: Sequence[Box]) -> Markup:
    """A hierarchy from above: the width of a box is its share of the whole, and its parts are below it."""
    deepest = max((box.depth for box in boxes), default=0)
    drawn = [
        tag(
            "div",
            tag("span", box.label),
            class_=f"box c{box.colour}",
            style=f"left:{box.left:.4%};width:{box.width:.4%};--depth:{box.depth}",
            data_tip=box.tip,
        )
        for box in boxes
    ]
    return tag("div", drawn, class_="icicle", style=f"--rows:{deepest + 1}")


def key(names: Sequence[tuple[str, int]]) -> Markup:
    """The legend of colours by name."""
    return tag(
        "p",
        [tag("span", [tag("i", class_=f"c{colour}"), name]) for name, colour in names],
        class_="legend key",
    )


def lorenz(curves: Mapping[str, Sequence[float]]) -> Markup:
    """Lorenz curves: cumulative shares from the least loaded node on, with the diagonal of an even
    distribution."""
    marks = [tag("path", d="M0 100L100 0", class_="even")]
    for index, shares in enumerate(curves.values()):
        steps = [(0.0, 0.0), *((rank / len(shares), share) for rank, share in enumerate(shares, start=1))]
        path = "L".join(f"{x * 100:.2f} {100 - y * 100:.2f}" for x, y in steps)
        if index == 0:
            marks.append(tag("path", d=f"M{path}L0 100Z", class_="between"))
        marks.append(tag("path", d=f"M{path}", class_=f"line s{index}"))
    labels = [
        tag("span", "part of the nodes, least loaded first", class_="x"),
        tag("span", "of the load", class_="y"),
    ]
    plot = tag("div", [_plot(marks), *labels], class_="plot square")
    return tag("div", [plot, key_of_lines(list(curves))], class_="lorenz")


def over_time(
    rows: Rows,
    timeline: Timeline,
    lines: Mapping[str, tuple[str, str]],
    ticks: Sequence[tuple[float, str]],
    *,
    log: bool = False,
) -> Markup:
    """Lines over time, by name: each of one role, from one column. A line has a gap at a window without a row
    or value.

    `ticks`: rising values of y that have a grid line, with their labels.
    """
    if not rows:
        return tag("p", "nothing was measured", class_="none")
    low, high = ticks[0][0], ticks[-1][0]

    def height(value: float) -> float:
        if log:
            return 100 - 100 * math.log(max(value, low) / low) / math.log(high / low)
        return 100 - 100 * (value - low) / (high - low)

    marks = [
        tag("rect", x=f"{left * 100:.3f}", y=0, width=f"{(right - left) * 100:.3f}", height=100, class_="gap")
        for left, right in timeline.gaps
    ]
    marks += [tag("path", d=f"M0 {height(value):.2f}H100", class_="grid") for value, _ in ticks]
    names: list[str] = []
    for name, (role, column) in lines.items():
        values = {row["window_start"]: row[column] for row in rows if row["role"] == role}
        if values:
            points = [(timeline.middle(i), values.get(time)) for i, time in enumerate(timeline.windows())]
            marks.append(tag("path", d=_path(points, height), class_=f"line s{len(names)}"))
            names.append(name)
    labels = [tag("span", text, class_="tick", style=f"top:{height(value):.2f}%") for value, text in ticks]
    plot = tag("div", [_plot(marks), *labels], class_="plot wide")
    return tag(
        "div",
        [plot, time_axis(timeline), key_of_lines(names, has_gaps=bool(timeline.gaps))],
        class_="over-time",
    )


def key_of_lines(names: Sequence[str], *, has_gaps: bool = False) -> Markup:
    """The legend of the lines, if there are several."""
    entries = [tag("span", [tag("i", class_=f"s{index}"), name]) for index, name in enumerate(names)]
    shown = [*(entries if names[1:] else ()), *(_key_of_gaps() if has_gaps else ())]
    return tag("p", shown, class_="legend key") if shown else Markup("")


def time_axis(timeline: Timeline) -> Markup:
    """The labels at the begin, the middle and the end."""
    times = timeline.labels()
    one_day = times[0].date() == times[-1].date()
    labels = [tag("span", moment(time, with_day=not one_day)) for time in times]
    return tag("div", labels, class_="time-axis")


def bar(part: float, text: str, class_: str = "") -> Markup:
    """A number over a bar whose length is its share of the largest."""
    inner = [tag("i", style=f"width:{min(max(part, 0.0), 1.0):.2%}", class_=class_), tag("span", text)]
    return tag("div", inner, class_="bar")


def columns(entries: Sequence[tuple[str, float, str]]) -> Markup:
    """Vertical bars: label, height from 0 to 1, and tip."""
    drawn = [
        tag(
            "div",
            [tag("i", style=f"height:{height:.2%}"), tag("span", label)],
            data_tip=tip,
        )
        for label, height, tip in entries
    ]
    return tag("div", drawn, class_="columns")


def span_on_scale(marks: Sequence[tuple[float, str]], low: float, high: float) -> Markup:
    """Connected points on a logarithmic scale: value and tip, in rising order."""

    def place(value: float) -> float:
        return math.log(min(max(value, low), high) / low) / math.log(high / low)

    first, last = place(marks[0][0]), place(marks[-1][0])
    dots = [
        tag("b", style=f"left:{place(value):.2%}", class_=f"p{index}", data_tip=tip)
        for index, (value, tip) in enumerate(marks)
    ]
    whole = tag("i", style=f"left:{first:.2%};width:{last - first:.2%}")
    return tag("div", [whole, *dots], class_="span")


def _key_of_gaps() -> tuple[Markup, ...]:
    return (tag("span", [tag("i", class_="gap"), "no telemetry"], class_="gaps"),)


def _strip(cells: Sequence[Cell], columns: int) -> Markup:
    marks = [
        tag(
            "rect",
            x=cell.column,
            y=0,
            width=1.02,
            height=1,
            class_=f"h{_heat(cell.level)}",
            data_tip=cell.tip,
        )
        for cell in cells
    ]
    return tag("svg", marks, viewBox=f"0 0 {columns} 1", preserveAspectRatio="none", role="img")


def _heat(level: float) -> int:
    return min(HEAT_LEVELS - 1, max(0, math.floor(level * HEAT_LEVELS)))


def _plot(marks: Sequence[Markup]) -> Markup:
    return tag("svg", marks, viewBox="0 0 100 100", preserveAspectRatio="none", role="img")


def _path(points: Iterable[tuple[float, float | None]], height: Callable[[float], float]) -> str:
    """A stroke for each run of points (x, y) without a gap. A single point is a dot, as wide as the stroke.

    x is from 0 to 1. y None: a gap.
    """
    commands: list[str] = []
    pen_is_down = False
    for x, y in points:
        if y is not None:
            commands.append(
                f"{'L' if pen_is_down else 'M'}{x * 100:.2f} {height(y):.2f}" + ("" if pen_is_down else "h0")
            )
        pen_is_down = y is not None
    return "".join(commands)
