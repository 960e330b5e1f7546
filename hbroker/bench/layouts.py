"""Who publishes to whom, by name.

A publisher has one topic; a subscriber has one, too, and gets what a run of publishers sends there. Topics
have 24 bytes and begin with a word of their own for each run, so that two runs at one broker do not meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

__all__ = ["LAYOUTS", "Layout", "Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A layout of some size. `publishers`: the number of each one's topic. `subscribers`: of each, the number
    of its topic, the first publisher that it hears, and how many it hears."""

    publishers: tuple[int, ...]
    subscribers: tuple[tuple[int, int, int], ...]

    @property
    def copies(self) -> int:
        """Messages that come for one of each publisher."""
        return sum(count for _, _, count in self.subscribers)


@dataclass(frozen=True, slots=True)
class Layout:
    """`clients`: how many there are unless somebody says. `window`: messages under way in all. `text`: what
    it is, with {} for the number."""

    clients: int
    window: int
    text: str
    of: Callable[[int], Shape]


def _pairs(clients: int) -> Shape:
    return Shape(tuple(range(clients)), tuple((pair, pair, 1) for pair in range(clients)))


def _fan_in(clients: int) -> Shape:
    return Shape((0,) * clients, ((0, 0, clients),))


def _fan_out(clients: int) -> Shape:
    return Shape((0,), ((0, 0, 1),) * clients)


LAYOUTS: Final[dict[str, Layout]] = {
    "pairs": Layout(8, 4_096, "{} pairs", _pairs),
    "fanin": Layout(8, 4_096, "{} to 1", _fan_in),
    "fanout": Layout(1_000, 64, "1 to {}", _fan_out),
}
