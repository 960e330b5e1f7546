"""The cuts of a node, as a tree of topic levels (§5.1), and a cache of which of them a filter touches (§6.1).

A node may have ten thousand children, and any client may ask it about filters. So the cost of a request
depends on how many cuts the filter touches, and not on how many there are. To find them takes milliseconds if
they are many. In a deep tree many filters touch the same cuts. So the cache stores each set of cuts once,
however many filters have it, until the jurisdiction changes. If there is no room, the answers that were used
longest ago are removed.
"""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from hbroker.subtree import depth, prefixes

__all__ = ["LONGEST_FILTER", "MOST_ANSWERS", "MOST_CUTS", "CutTree", "TouchedCuts"]

MOST_ANSWERS: Final = 1_024
MOST_CUTS: Final = 200_000
"""The most cuts in all sets together. A set with more is the only one."""
LONGEST_FILTER: Final = 256
"""In characters. A longer filter is not cached."""

AnyT = TypeVar("AnyT")
Question: TypeAlias = tuple[str, int | None]
"""A filter, and the link of a parent or None."""


class _Cut(Protocol):
    @property
    def subtree(self) -> str: ...


CutT = TypeVar("CutT", bound=_Cut)


class CutTree(Generic[CutT]):
    """One cut for each subtree, found by subtree, by prefix, and by filter."""

    def __init__(self) -> None:
        self._by_subtree: dict[str, CutT] = {}
        self._below: dict[str, dict[str, CutT]] = {}
        """For each prefix of a cut: the cuts at and below the prefix."""
        self._next: dict[str, dict[str, None]] = {}
        """For each prefix above a cut: the prefixes with one level more that have cuts at or below them."""
        self._depths: Counter[int] = Counter()
        self._names: Counter[tuple[int, str]] = Counter()
        """For each level name and its depth: the number of prefixes that end with it."""

    # Change

    def put(self, cut: CutT) -> None:
        """Adds a cut, or replaces the cut of the same subtree."""
        if cut.subtree not in self._by_subtree:
            self._depths[depth(cut.subtree)] += 1
        self._by_subtree[cut.subtree] = cut
        above = None
        for prefix in prefixes(cut.subtree, depth(cut.subtree)):
            if prefix not in self._below:
                self._names[_last_of(prefix)] += 1
            self._below.setdefault(prefix, {})[cut.subtree] = cut
            if above is not None:
                self._next.setdefault(above, {})[prefix] = None
            above = prefix

    def remove(self, subtree: str) -> CutT | None:
        """Removes a cut and returns it; None: there was none."""
        cut = self._by_subtree.pop(subtree, None)
        if cut is None:
            return None
        self._depths[depth(subtree)] -= 1
        above = None
        for prefix in prefixes(subtree, depth(subtree)):
            below = self._below[prefix]
            del below[subtree]
            if not below:
                del self._below[prefix]
                self._names[_last_of(prefix)] -= 1
                if not self._names[_last_of(prefix)]:
                    del self._names[_last_of(prefix)]
                self._next.pop(prefix, None)
                if above is not None and above in self._next:
                    self._next[above].pop(prefix, None)
            above = prefix
        return cut

    # Read

    def get(self, subtree: str) -> CutT | None:
        """The cut of exactly this subtree, or None."""
        return self._by_subtree.get(subtree)

    def __iter__(self) -> Iterator[CutT]:
        return iter(self._by_subtree.values())

    def __len__(self) -> int:
        return len(self._by_subtree)

    @property
    def deepest(self) -> int:
        """The most levels of a cut."""
        return max((levels for levels, count in self._depths.items() if count), default=0)

    def cuts_below(self, subtree: str) -> list[CutT]:
        """The cuts at or below a subtree."""
        return list(self._below.get(subtree, {}).values())

    def first_below(self, subtree: str, most: int) -> list[CutT]:
        """At most `most` of the cuts at or below a subtree."""
        return list(islice(self._below.get(subtree, {}).values(), most))

    def count_below(self, subtree: str) -> int:
        """The number of cuts at or below a subtree."""
        return len(self._below.get(subtree, ()))

    def touched(self, filter: str) -> list[CutT]:
        """The cuts with topics that the filter can match (§6.1)."""
        found: list[CutT] = []
        reached = [""]
        for at, level in enumerate(filter.split("/")):
            if level == "#":
                below = (cut for prefix in reached for cut in self.cuts_below(prefix))
                return found + [cut for cut in below if at or not cut.subtree.startswith("$")]
            found += self._at(reached)
            reached = self._step(reached, level, is_first=not at)
        return found + self._at(reached)

    def canonical_filter(self, filter: str) -> str:
        """A filter that touches the same cuts. For most filters that touch the same cuts it is the same one.
        So a cached answer also serves clients that ask for names that no cut has, and for another name each
        time."""
        levels, deepest = filter.split("/"), self.deepest
        for at, level in enumerate(levels):
            if at and at == deepest:
                return "/".join([*levels[:at], "#"])
            if level not in _WILDCARDS and (at + 1, level) not in self._names:
                return "/".join([*levels[:at], _NO_NAME])
        return filter

    def covers(self, filter: str, subtree: str) -> bool:
        """Whether one cut contains every topic of `subtree` that the filter matches.

        Inside the subtree its levels are given, so a wildcard there is no choice. Below it, each wildcard is
        a choice of endlessly many names, of which a cut has one. So if no single cut covers the topics, no
        set of cuts does.
        """
        above = subtree.split("/") if subtree else []
        levels = filter.split("/")
        named = [] if "#" in levels[: len(above)] else levels[len(above) :]
        prefix = subtree
        if prefix in self._by_subtree:
            return True
        for level in named:
            prefix = f"{prefix}/{level}" if prefix else level
            if not level or prefix not in self._below:  # No cut has an empty level.
                return False
            if prefix in self._by_subtree:
                return True
        return False

    def _at(self, reached: Iterable[str]) -> list[CutT]:
        return [cut for prefix in reached if (cut := self._by_subtree.get(prefix)) is not None]

    def _step(self, reached: list[str], level: str, *, is_first: bool) -> list[str]:
        if level == "+":
            steps = (step for prefix in reached for step in self._next.get(prefix, ()))
            return [step for step in steps if not (is_first and step.startswith("$"))]
        steps = (f"{prefix}/{level}" if prefix else level for prefix in reached)
        return [step for step in steps if level and step in self._below]


def _last_of(prefix: str) -> tuple[int, str]:
    return depth(prefix), prefix.rpartition("/")[2]


_WILDCARDS: Final = frozenset("+#")
_NO_NAME: Final = "\0"
"""A level that no topic has."""


@dataclass(slots=True)
class _CutSet(Generic[AnyT]):
    """A set of cuts. `answers`: how many cached questions have this answer."""

    cuts: tuple[AnyT, ...]
    answers: int = 0


class TouchedCuts(Generic[AnyT]):
    """The touched cuts by question."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Question, bytes] = OrderedDict()
        self._sets: dict[bytes, _CutSet[AnyT]] = {}
        self._cuts = 0

    # Change

    def put(self, question: Question, cuts: Iterable[AnyT]) -> tuple[AnyT, ...]:
        """Stores the cuts of a question that is not cached. Returns them; all questions with the same cuts
        get the same object."""
        found = tuple(cuts)
        if len(question[0]) > LONGEST_FILTER:
            return found
        name = _name_of(found)
        known = self._sets.get(name)
        if known is None:
            self._make_room(len(found))
            known = self._sets[name] = _CutSet(found)
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

    def of(self, question: Question) -> tuple[AnyT, ...] | None:
        """The cuts of a question; None: it is not cached."""
        name = self._answers.get(question)
        if name is None:
            return None
        self._answers.move_to_end(question)
        return self._sets[name].cuts

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
