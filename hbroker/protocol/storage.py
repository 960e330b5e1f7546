"""What a node is told of the disk that its promises rest on.

A node notes what its next run must know: the subtrees that it delegated, what orders changed, who had
subscribed. That takes effect at once. But what it says to others on the strength of it (COMMIT and DONE of a
handover, SUBACK) waits until the note outlives a loss of power. So notes are counted, and the count that is
on the disk rises later. `AfterSync` keeps what waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

__all__ = ["AfterSync", "Storage", "Unstored"]

MOST_WAITING: Final = 65_536
"""Actions that wait for the disk at most: one more is not taken, and whoever asked for it asks again. And as
many that wait for no more than one of these."""


class Storage(Protocol):
    """The files of one node, as its decisions see them."""

    @property
    def written(self) -> int:
        """How many notes were taken."""

    @property
    def durable(self) -> int:
        """How many of them are on the disk: all before that, too."""

    @property
    def is_failing(self) -> bool:
        """Whether the disk takes nothing now. What was noted is kept, and is written as soon as it does."""

    def know_delegations(self) -> None:
        """Delegations that were lost from the file matter no longer."""

    def know_subscriptions(self) -> None:
        """Subscriptions that were lost from the file matter no longer."""


class Unstored:
    """Of a node without files: nothing that it says rests on a disk."""

    written = 0
    durable = 0
    is_failing = False

    def know_delegations(self) -> None:
        """Nothing was lost."""

    def know_subscriptions(self) -> None:
        """Nothing was lost."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """`link`: over which it answers; None: over none, or nobody is to be answered in order. `followers`: what
    is done behind it."""

    mark: int
    act: Callable[[], object]
    link: int | None
    followers: list[Callable[[], object]] = field(default_factory=list)


class AfterSync:
    """Actions that wait until what was noted before them is on the disk. Those that need the disk are done in
    their order, and so are the others, which wait for nothing while the disk fails."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._needing: deque[_Waiting] = deque()
        self._others: deque[_Waiting] = deque()
        self._last: dict[int, _Waiting] = {}
        """Of the actions that answer over a link, by that link."""
        self._followers = 0

    # Change

    def do(self, act: Callable[[], object]) -> bool:
        """Does it as soon as all that was noted is on the disk: now, where it is. False: too many wait."""
        return self._wait(self._needing, act, None)

    def answer(self, link: int, act: Callable[[], object]) -> bool:
        """The same, but that it answers over a link, and that a disk that fails is not waited for."""
        return self._wait(self._others, act, link)

    def follow(self, link: int, act: Callable[[], object]) -> bool:
        """Does it behind the answers over this link that wait already: now, where none does. False: too many
        wait."""
        last = self._last.get(link)
        if last is None:
            act()
            return True
        if self._followers >= MOST_WAITING:
            return False
        last.followers.append(act)
        self._followers += 1
        return True

    def handle_timeout(self) -> None:
        """Does what has waited long enough."""
        for waiting in (self._needing, self._others):
            while self._is_due(waiting):
                self._end(waiting.popleft())

    # Read

    def poll_timeout(self) -> int | None:
        """0: `handle_timeout` is due. None: nothing waits, or all waits for the disk."""
        return 0 if self._is_due(self._needing) or self._is_due(self._others) else None

    def mark(self) -> int:
        """Of what was noted so far: `has` tells when it is on the disk."""
        return self._storage.written

    def has(self, mark: int) -> bool:
        """Whether everything up to a mark is on the disk."""
        return self._storage.durable >= mark

    @property
    def is_failing(self) -> bool:
        """Whether the disk takes nothing now."""
        return self._storage.is_failing

    def _wait(self, waiting: deque[_Waiting], act: Callable[[], object], link: int | None) -> bool:
        if len(waiting) >= MOST_WAITING:
            return False
        action = _Waiting(self._storage.written, act, link)
        if link is not None:
            self._last[link] = action
        waiting.append(action)
        self.handle_timeout()
        return True

    def _end(self, action: _Waiting) -> None:
        if action.link is not None and self._last[action.link] is action:
            del self._last[action.link]
        self._followers -= len(action.followers)
        for act in (action.act, *action.followers):
            act()

    def _is_due(self, waiting: deque[_Waiting]) -> bool:
        if not waiting:
            return False
        return self.has(waiting[0].mark) or (self.is_failing and waiting is self._others)
