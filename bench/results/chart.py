"""Charts as SVG, drawn without a library: each is a few kilobytes of text, whose changes make a readable
diff.

Axes are logarithmic, because the values differ by factors. A value is a dot, with a line between its
extremes. A curve is a line from dot to dot.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from bench.series import Spread

_WIDTH: Final = 760
_LABELS: Final = 210
"""Pixels for the names at the left."""
_RIGHT: Final = 90
"""Pixels for the values at the right."""
_ROW: Final = 20
_COLOURS: Final = ("#0b6e99", "#c4572b", "#4d7c2f", "#7a4b9c")
_INK: Final = "#444"
_RULE: Final = "#ccc"


@dataclass(frozen=True, slots=True)
class Point:
    """One value, with its name."""

    name: str
    value: Spread


@dataclass(frozen=True, slots=True)
class Panel:
    """Values of one unit, one below the other."""

    title: str
    unit: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Curve:
    """A cost at each size."""

    name: str
    points: Sequence[tuple[float, float]]


def dots(panels: Iterable[Panel]) -> str:
    """The panels, one below the other. Panels without a value are left out."""
    body: list[str] = []
    top = 10.0
    for panel in panels:
        if panel.points:
            body += _dot_panel(panel, top)
            top += (len(panel.points) + 4) * _ROW
    return _svg(body, top)


def lines(title: str, across: str, up: str, curves: Sequence[Curve]) -> str:
    """One plot of several curves. `across`, `up`: the titles of the axes."""
    height, bottom = 300.0, 340.0
    x_axis = _Axis.over((x for curve in curves for x, _ in curve.points), 70, _WIDTH - _RIGHT - 60)
    y_axis = _Axis.over((y for curve in curves for _, y in curve.points), bottom, bottom - height + 40)
    body = [_text(70, 20, title, weight="bold"), _text(70, 42, up), _text(70, bottom + 36, across)]
    for x, label in x_axis.ticks():
        body += [
            _line(x, bottom, x, bottom - height + 40, _RULE),
            _text(x, bottom + 18, label, anchor="middle"),
        ]
    for y, label in y_axis.ticks():
        body += [_line(70, y, x_axis.last, y, _RULE), _text(64, y + 4, label, anchor="end")]
    for index, curve in enumerate(curves):
        colour = _COLOURS[index % len(_COLOURS)]
        placed = [(x_axis.at(x), y_axis.at(y)) for x, y in curve.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in placed]
        body.append(_text(x_axis.last + 10, 70 + index * _ROW, curve.name, colour=colour))
    return _svg(body, bottom + 50)


def short(value: float) -> str:
    """Three digits and a prefix: 1.25 M."""
    for least, prefix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= least:
            return f"{value / least:.3g}{prefix}"
    return f"{value:.3g}"


def _dot_panel(panel: Panel, top: float) -> Iterator[str]:
    spreads = [point.value for point in panel.points]
    axis = _Axis.over((x for one in spreads for x in (one.least, one.most)), _LABELS, _WIDTH - _RIGHT)
    bottom = top + (len(panel.points) + 1.5) * _ROW
    yield _text(10, top + 12, f"{panel.title}: {panel.unit}", weight="bold")
    for x, label in axis.ticks():
        yield _line(x, top + _ROW, x, bottom, _RULE)
        yield _text(x, bottom + 14, label, anchor="middle")
    for number, point in enumerate(panel.points):
        y = top + (number + 1.6) * _ROW
        colour = _COLOURS[0] if point.name.startswith("hbroker") else _COLOURS[1]
        yield _text(_LABELS - 12, y + 4, point.name, anchor="end")
        yield _line(axis.at(point.value.least), y, axis.at(point.value.most), y, colour)
        yield f'<circle cx="{axis.at(point.value.median):.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'
        yield _text(_WIDTH - _RIGHT + 14, y + 4, short(point.value.median))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Maps powers of ten to positions."""

    low: int
    high: int
    first: float
    last: float

    @classmethod
    def over(cls, values: Iterable[float], first: float, last: float) -> _Axis:
        """An axis of whole decades that contains all values above 0."""
        logs = [math.log10(value) for value in values if value > 0] or [0.0]
        low = math.floor(min(logs))
        return cls(low, max(low + 1, math.ceil(max(logs))), first, last)

    def at(self, value: float) -> float:
        """The position of a value. A value that is not above 0 is at the begin of the axis."""
        share = (math.log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return self.first + share * (self.last - self.first)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Each power of ten; with few decades also 2 and 5 between them."""
        between = (1, 2, 5) if self.high - self.low <= 2 else (1,)
        for exponent in range(self.low, self.high):
            for digit in between:
                yield self.at(digit * 10.0**exponent), short(digit * 10.0**exponent)
        yield self.last, short(10.0**self.high)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", colour: str = _INK
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-weight="{weight}" fill="{colour}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    places = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {places} stroke="{colour}" stroke-width="{1 if colour == _RULE else 2}"/>'


def _svg(body: Iterable[str], height: float) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'width="{_WIDTH}" height="{height:.0f}" font-family="sans-serif" font-size="12">'
    )
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join((head, ground, *body, "</svg>", ""))
