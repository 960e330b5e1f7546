"""The levels at which filters have `+`, and how many such shapes a node accepts (§6.3).

A look-up in the trie follows every filter that matches the levels so far. For one topic, two such filters
differ, up to a level, only in where they have `+`. So a look-up follows at most one filter for each *shape*,
which is the set of levels at which a filter has `+`. Without a bound, the filters of one client (`+/a`,
`a/+`, `+/+` and so on) would double the cost with each level. Ordinary shapes are few and always accepted, so
no client can use them up.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

__all__ = ["Shape", "WildcardShapes", "is_too_deep", "shape_of"]

Shape: TypeAlias = tuple[int, ...]

MOST_LEVELS: Final = 64
"""The most levels of a filter with `+`. A filter without `+` has its shape alone, however deep it is."""
ORDINARY_PLUSES: Final = 2
ORDINARY_LEVELS: Final = 16
"""A shape is ordinary if it has at most `ORDINARY_PLUSES` `+`, all of them in the first `ORDINARY_LEVELS`
levels. There are 137 such shapes."""
MOST_OF_A_SESSION: Final = 64
MOST_OF_A_NODE: Final = 256
"""The most shapes of a session, and of a node, that are not ordinary."""


def shape_of(filter: str) -> Shape | None:
    """The levels at which a valid filter has `+`; None: the shape is ordinary."""
    pluses = filter.count("+")
    if pluses <= ORDINARY_PLUSES and filter.count("/", 0, filter.rfind("+") + 1) < ORDINARY_LEVELS:
        return None
    return tuple(at for at, level in enumerate(filter.split("/")) if level == "+")


def is_too_deep(filter: str) -> bool:
    """Whether a valid filter has `+` and more than `MOST_LEVELS` levels."""
    return "+" in filter and filter.count("/") >= MOST_LEVELS


class WildcardShapes:
    """The shapes of the stored filters that are not ordinary. `each`: the most of one session. `most`: the
    most in all."""

    def __init__(self, each: int = MOST_OF_A_SESSION, most: int = MOST_OF_A_NODE) -> None:
        self._each = each
        self._most = most
        self._of_session: dict[int, Counter[Shape]] = {}
        self._all: Counter[Shape] = Counter()

    def add(self, session: int, filter: str) -> None:
        """Adds a filter of a session, even beyond the bounds."""
        shape = shape_of(filter)
        if shape is not None:
            self._of_session.setdefault(session, Counter())[shape] += 1
            self._all[shape] += 1

    def remove(self, session: int, filter: str) -> None:
        """Removes a filter that was added."""
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
