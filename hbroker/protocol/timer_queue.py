"""What is due when: one deadline for each key, the earliest first.

A heap with lazy deletion: a deadline that was moved or cancelled stays in the heap until it comes up, and
the heap is rebuilt when more than half of it is such remains. So every call costs O(log n) amortised, and
memory is proportional to the deadlines that stand. There are many agendas with nothing on them, some for each
client of a gateway: such a one holds nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeVar

__all__ = ["TimerQueue", "earliest"]

KeyT = TypeVar("KeyT", bound=Hashable)

_SLACK: Final = 64
_NOTHING: Final[list[Any]] = []
"""What no agenda with a deadline has."""


class TimerQueue(Generic[KeyT]):
    """Deadlines in microseconds by key."""

    __slots__ = ("_deadlines", "_heap", "_serial")

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, tuple[int, int]] | None = None
        """None: there are none."""
        self._heap: list[tuple[int, int, KeyT]] = _NOTHING
        self._serial = 0

    def set(self, key: KeyT, at: int) -> None:
        """Makes `key` due at `at`, and at no other time."""
        if self._deadlines is None:
            self._deadlines, self._heap = {}, []
        self._serial += 1
        self._deadlines[key] = (at, self._serial)
        heappush(self._heap, (at, self._serial, key))
        if len(self._heap) > 2 * len(self._deadlines) + _SLACK:
            self._heap = [(at, serial, key) for key, (at, serial) in self._deadlines.items()]
            heapify(self._heap)

    def cancel(self, key: KeyT) -> None:
        """`key` is due no more. One that never was is ignored."""
        if self._deadlines is None:
            return
        self._deadlines.pop(key, None)
        if not self._deadlines:
            self._deadlines, self._heap = None, _NOTHING

    def due(self, now: int) -> Iterator[KeyT]:
        """Takes out one key after the other whose time has come, the earliest first.

        What is set or cancelled in between counts.
        """
        while (first := self.next()) is not None and first <= now:
            key = self._heap[0][2]
            self.cancel(key)
            yield key

    def next(self) -> int | None:
        """The earliest deadline; None where nothing is planned."""
        if self._deadlines is None:
            return None
        while True:  # each of them is in the heap
            at, serial, key = self._heap[0]
            if self._deadlines.get(key) == (at, serial):
                return at
            heappop(self._heap)

    def at(self, key: KeyT) -> int | None:
        """When `key` is due; None: it is not."""
        found = None if self._deadlines is None else self._deadlines.get(key)
        return None if found is None else found[0]

    def __contains__(self, key: object) -> bool:
        return self._deadlines is not None and key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines or ())


def earliest(*deadlines: int | None) -> int | None:
    """The earliest of several deadlines, of which any may be absent."""
    return min((at for at in deadlines if at is not None), default=None)
