"""At which levels filters have `+`, and how many such shapes a node takes (§6.3).

A look-up follows every filter that matches the levels so far. Of one topic two such filters differ, up to a
level, in nothing but where they have `+`. So a look-up follows at most one filter for each *shape*, the
levels at which a filter has `+`; without a bound the filters of one client, `+/a`, `a/+`, `+/+` and so on,
would double it with each level. Ordinary shapes are few, and always taken: nobody can use them up.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

__all__ = ["Shape", "Shapes", "is_too_deep", "shape_of"]

Shape: TypeAlias = tuple[int, ...]

MOST_LEVELS: Final = 64
"""Of a filter with `+`. One without is alone in having its shape, however deep."""
ORDINARY_PLUSES: Final = 2
ORDINARY_LEVELS: Final = 16
"""A shape is ordinary that has no more `+`, all of them in the first levels: there are 137."""
MOST_OF_A_SESSION: Final = 64
MOST_OF_A_NODE: Final = 256
"""Shapes that are not ordinary."""


def shape_of(filter: str) -> Shape | None:
    """The levels at which a valid filter has `+`; None: it is ordinary."""
    pluses = filter.count("+")
    if pluses <= ORDINARY_PLUSES and filter.count("/", 0, filter.rfind("+") + 1) < ORDINARY_LEVELS:
        return None
    return tuple(at for at, level in enumerate(filter.split("/")) if level == "+")


def is_too_deep(filter: str) -> bool:
    """Whether a valid filter has `+`, and more levels than go with it."""
    return "+" in filter and filter.count("/") >= MOST_LEVELS


class Shapes:
    """The shapes of the filters that there are, but for the ordinary ones. `each`, `most`: how many of one
    session, and of all."""

    def __init__(self, each: int = MOST_OF_A_SESSION, most: int = MOST_OF_A_NODE) -> None:
        self._each = each
        self._most = most
        self._of_session: dict[int, Counter[Shape]] = {}
        self._all: Counter[Shape] = Counter()

    def add(self, session: int, filter: str) -> None:
        """Another filter of a session, room or not."""
        shape = shape_of(filter)
        if shape is not None:
            self._of_session.setdefault(session, Counter())[shape] += 1
            self._all[shape] += 1

    def remove(self, session: int, filter: str) -> None:
        """One that was added is gone."""
        shape = shape_of(filter)
        if shape is not None:
            of_session = self._of_session[session]
            _take_one(of_session, shape)
            if not of_session:
                del self._of_session[session]
            _take_one(self._all, shape)

    def has_room(self, session: int, filter: str) -> bool:
        """Whether another filter of a session stays within the bounds."""
        if is_too_deep(filter):
            return False
        shape = shape_of(filter)
        if shape is None:
            return True
        of_session = self._of_session.get(session, ())
        is_known = shape in of_session or len(of_session) < self._each
        return is_known and (shape in self._all or len(self._all) < self._most)


def _take_one(counter: Counter[Shape], shape: Shape) -> None:
    counter[shape] -= 1
    if not counter[shape]:
        del counter[shape]
