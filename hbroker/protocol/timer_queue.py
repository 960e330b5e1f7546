"""A timer queue: one deadline for each key, the earliest first.

It is a heap with lazy deletion. A deadline that was moved or cancelled stays in the heap until it reaches the
top, and the heap is rebuilt when more than half of its entries are such. So each call costs O(log n)
amortised, and the memory is proportional to the valid deadlines. A gateway has several empty timer queues for
each of its clients, so an empty one has no heap of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeVar

__all__ = ["TimerQueue", "earliest"]

KeyT = TypeVar("KeyT", bound=Hashable)

_SLACK: Final = 64
_NOTHING: Final[list[Any]] = []
"""The heap of all empty timer queues."""


class TimerQueue(Generic[KeyT]):
    """Deadlines in microseconds, by key."""

    __slots__ = ("_deadlines", "_heap", "_serial")

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, tuple[int, int]] | None = None
        """None: there are no deadlines."""
        self._heap: list[tuple[int, int, KeyT]] = _NOTHING
        self._serial = 0

    def set(self, key: KeyT, at: int) -> None:
        """Sets the deadline of `key`, in place of an earlier one."""
        if self._deadlines is None:
            self._deadlines, self._heap = {}, []
        self._serial += 1
        self._deadlines[key] = (at, self._serial)
        heappush(self._heap, (at, self._serial, key))
        if len(self._heap) > 2 * len(self._deadlines) + _SLACK:
            self._heap = [(at, serial, key) for key, (at, serial) in self._deadlines.items()]
            heapify(self._heap)

    def cancel(self, key: KeyT) -> None:
        """Removes the deadline of `key`, if there is one."""
        if self._deadlines is None:
            return
        self._deadlines.pop(key, None)
        if not self._deadlines:
            self._deadlines, self._heap = None, _NOTHING

    def due(self, now: int) -> Iterator[KeyT]:
        """Removes and yields each key that is due, the earliest first.

        Deadlines that are set or cancelled during the iteration count.
        """
        while (first := self.next()) is not None and first <= now:
            key = self._heap[0][2]
            self.cancel(key)
            yield key

    def next(self) -> int | None:
        """The earliest deadline; None: there is none."""
        if self._deadlines is None:
            return None
        while True:  # Ends, because each deadline is in the heap.
            at, serial, key = self._heap[0]
            if self._deadlines.get(key) == (at, serial):
                return at
            heappop(self._heap)

    def at(self, key: KeyT) -> int | None:
        """The deadline of `key`; None: it has none."""
        found = None if self._deadlines is None else self._deadlines.get(key)
        return None if found is None else found[0]

    def __contains__(self, key: object) -> bool:
        return self._deadlines is not None and key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines or ())


def earliest(*deadlines: int | None) -> int | None:
    """The earliest of several deadlines, each of which may be None."""
    return min((at for at in deadlines if at is not None), default=None)
