"""HTML in which every text is escaped, and only `Markup` is not.

Topics and names come from the network: any publisher can choose them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from html import escape
from typing import TypeAlias


class Markup(str):
    """A text that is markup already."""

    __slots__ = ()


Content: TypeAlias = "Markup | str | int | Iterable[Content]"

_DASH = "\N{EN DASH}"
_VOID = {"br", "meta", "rect", "line", "path", "circle"}


def tag(name: str, content: Content = "", /, **attributes: str | float | None) -> Markup:
    """An element. In attributes `_` stands for `-`, except at the end (`class_`). None omits an attribute."""
    named = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{named}/>")
    return Markup(f"<{name}{named}>{joined(content)}</{name}>")


def joined(content: Content) -> Markup:
    """Escaped texts, and unchanged markup."""
    if isinstance(content, Markup):
        return content
    if isinstance(content, str | int):
        return Markup(escape(str(content)))
    return Markup("".join(joined(part) for part in content))


def number(value: float | None, digits: int = 3) -> str:
    """A number with this number of digits: `12.3 k`, `4.56 M`, `0.34`; a dash for None."""
    if value is None:
        return _DASH
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scale = 1e3 if unit == "k" else limit
            return f"{_plain(value / scale, digits)} {unit}"
    return _plain(value, digits)


def size(value: float | None) -> str:
    """A number of bytes: `512 B`, `48.3 MB`; a dash for None."""
    reported = number(value)
    return reported if value is None else f"{reported}B" if reported[-1].isalpha() else f"{reported} B"


def percent(part: float | None) -> str:
    """A percentage: `41%`, `0.3%`; a dash for None."""
    if part is None:
        return _DASH
    return f"{part * 100:.0f}%" if part >= 0.0995 else f"{part * 100:.1f}%"


def micros(value: float | None) -> str:
    """A duration, from microseconds; a dash for None."""
    if value is None:
        return _DASH
    for limit, unit in ((1e6, "s"), (1e3, "ms")):
        if value >= limit:
            return f"{_plain(value / limit, 3)} {unit}"
    return f"{_plain(value, 3)} µs"


def moment(value: datetime, *, with_day: bool = True) -> str:
    """A time in UTC, to the nearest second."""
    value += timedelta(seconds=0.5)
    return value.strftime("%Y-%m-%d %H:%M:%S" if with_day else "%H:%M:%S").removesuffix(":00")


def _plain(value: float, digits: int) -> str:
    if value == int(value) and abs(value) < 10**4:
        return str(int(value))
    whole = len(str(int(abs(value))))
    return f"{value:,.{max(0, digits - whole)}f}"
