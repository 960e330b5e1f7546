"""What a node is told of the disk that its promises rest on.

A node notes what its next run must know: the subtrees that it delegated, what orders changed, who had
subscribed. That takes effect at once. But what it says to others on the strength of it (COMMIT and DONE of a
handover, SUBACK) waits until the note outlives a loss of power. So notes are counted, and the count that is
on the disk rises later. `AfterSync` keeps what waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["AfterSync", "Storage", "Unstored"]

MOST_WAITING: Final = 65_536
"""Actions that wait for the disk at most: one more is not taken, and whoever asked for it asks again."""


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


@dataclass(frozen=True, slots=True)
class _Waiting:
    mark: int
    act: Callable[[], object]


class AfterSync:
    """Actions that wait until what was noted before them is on the disk. Those that need the disk are done in
    their order, and so are the others, which wait for nothing while the disk fails."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._needing: deque[_Waiting] = deque()
        self._others: deque[_Waiting] = deque()

    # Change

    def do(self, act: Callable[[], object], *, needs_disk: bool = True) -> bool:
        """Does it as soon as all that was noted is on the disk: now, where it is. False: too many wait.

        `needs_disk` False: while the disk fails it is not waited for.
        """
        waiting = self._needing if needs_disk else self._others
        if len(waiting) >= MOST_WAITING:
            return False
        waiting.append(_Waiting(self._storage.written, act))
        self.handle_timeout()
        return True

    def follow(self, act: Callable[[], object]) -> bool:
        """Does it behind those that wait already and do not need the disk: now, where none does. False: too
        many wait."""
        if not self._others:
            act()
            return True
        if len(self._others) >= MOST_WAITING:
            return False
        self._others.append(_Waiting(0, act))
        return True

    def handle_timeout(self) -> None:
        """Does what has waited long enough."""
        while self._is_due(self._needing):
            self._needing.popleft().act()
        while self._is_due(self._others):
            self._others.popleft().act()

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

    def _is_due(self, waiting: deque[_Waiting]) -> bool:
        if not waiting:
            return False
        return self.has(waiting[0].mark) or (self.is_failing and waiting is self._others)
