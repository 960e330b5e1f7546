"""A cache of which cuts a filter touches, valid until the jurisdiction changes (§6.1).

Any client may ask a node with thousands of children about filters, and to find the children that a filter
touches takes milliseconds. In a deep tree many filters touch the same cuts. Each set of cuts is stored once,
however many filters have it. If there is no room, the answers that were used longest ago are removed.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Generic, TypeAlias, TypeVar

__all__ = ["LONGEST_FILTER", "MOST_ANSWERS", "MOST_CUTS", "TouchedCuts"]

MOST_ANSWERS: Final = 1_024
MOST_CUTS: Final = 200_000
"""The most cuts in all sets together. A set with more is the only one."""
LONGEST_FILTER: Final = 256
"""In characters. A longer filter is not cached."""

CutT = TypeVar("CutT")
Question: TypeAlias = tuple[str, int | None]
"""A filter, and the link of a parent or None."""


@dataclass(slots=True)
class _Set(Generic[CutT]):
    """A set of cuts. `answers`: how many questions have it."""

    cuts: tuple[CutT, ...]
    answers: int = 0


class TouchedCuts(Generic[CutT]):
    """The touched cuts by question."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Question, bytes] = OrderedDict()
        self._sets: dict[bytes, _Set[CutT]] = {}
        self._cuts = 0

    # Change

    def keep(self, question: Question, cuts: Iterable[CutT]) -> tuple[CutT, ...]:
        """Stores the cuts of a question that is not cached. Returns them; all questions with the same cuts
        get the same object."""
        found = tuple(cuts)
        if len(question[0]) > LONGEST_FILTER:
            return found
        name = _name_of(found)
        known = self._sets.get(name)
        if known is None:
            self._make_room(len(found))
            known = self._sets[name] = _Set(found)
            self._cuts += len(found)
        self._answers[question] = name
        known.answers += 1
        if len(self._answers) > MOST_ANSWERS:
            self._forget_one()
        return known.cuts

    def clear(self) -> None:
        """Removes everything."""
        self._answers.clear()
        self._sets.clear()
        self._cuts = 0

    # Read

    def of(self, question: Question) -> tuple[CutT, ...] | None:
        """The cuts of a question; None: it is not cached."""
        name = self._answers.get(question)
        if name is None:
            return None
        self._answers.move_to_end(question)
        return self._sets[name].cuts

    @property
    def questions(self) -> list[Question]:
        """The cached questions, the one that was used last at the end."""
        return list(self._answers)

    def __len__(self) -> int:
        """The number of cuts in all sets."""
        return self._cuts

    def _make_room(self, cuts: int) -> None:
        while self._answers and self._cuts + cuts > MOST_CUTS:
            self._forget_one()

    def _forget_one(self) -> None:
        _, name = self._answers.popitem(last=False)
        known = self._sets[name]
        known.answers -= 1
        if not known.answers:
            del self._sets[name]
            self._cuts -= len(known.cuts)


def _name_of(cuts: tuple[object, ...]) -> bytes:
    """An id of a set of cuts. It is made of the objects' identities, which no other objects have while the
    set is stored."""
    return blake2b(array("Q", map(id, cuts)), digest_size=16).digest()
