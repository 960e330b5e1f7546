"""The periods of the control protocol (docs/protocol.md §9), in microseconds, and a queue of deadlines.

`TimerQueue` has one deadline for each key, the earliest first. It is a heap with lazy deletion. A deadline
that was moved or cancelled stays in the heap until it reaches the top, and the heap is rebuilt when more than
half of its entries are such. So each call costs O(log n) amortised, and the memory is proportional to the
valid deadlines. A gateway has several empty timer queues for each of its clients, so an empty one has no heap
of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, Final, Generic, TypeVar

SECOND: Final = 1_000_000

KEEP_ALIVE: Final = 2 * SECOND
IDLE_TIMEOUT: Final = 15 * SECOND

LEASE: Final = 20 * SECOND
LEASE_RENEWALS: Final = 5
"""How often a lease is renewed during its length. If a parent was killed just before a renewal and is back
after 10 s, its children must still serve. With 1 s of drift and 4 s since the last renewal, 5 s are left."""
LEASE_DRIFT: Final = 1 * SECOND
"""The owner stops serving this long before its lease ends. The parent takes the subtree back this long
after."""

RETURN: Final = 10 * SECOND
"""The time that subscribers have to come to a parent that took a subtree back from their owner. The parent
took it back 21 s after it last heard from that owner, which may have fallen silent one renewal later. The
subscribers give the owner up after their idle timeout and a keep-alive. The rest is for a discovery over a
bad path."""

RETRY_FIRST: Final = SECOND // 4
RETRY_FACTOR: Final = 2
RETRY_MOST: Final = 4 * SECOND
RETRY_JITTER: Final = 0.25
SEARCH_MOST: Final = 1 * SECOND
"""The longest pause of a search for which others wait: messages for their owner (10 s), a subtree for its
parent. If a fifth of all datagrams is lost, two of five tries fail. One search in a thousand has seven such
failures in a row. They take 6 s; with `RETRY_MOST` they would take 16 s."""

ZONE_TTL: Final = 300 * SECOND
NEGATIVE_TTL: Final = 1 * SECOND

KeyT = TypeVar("KeyT", bound=Hashable)

_SLACK: Final = 64
_NOTHING: Final[list[Any]] = []
"""The heap of all empty timer queues."""


def retry_after(attempt: int, random: Random, most: int = RETRY_MOST) -> int:
    """The pause after try `attempt` (from 0) before the next: exponential with jitter, and at most `most`
    before the jitter."""
    doublings: int = RETRY_FACTOR ** min(attempt, 16)
    period = min(RETRY_FIRST * doublings, most)
    return round(period * random.uniform(1 - RETRY_JITTER, 1 + RETRY_JITTER))


class TimerQueue(Generic[KeyT]):
    """Deadlines in microseconds, by key."""

    __slots__ = ("_deadlines", "_heap", "_serial")

    def __init__(self) -> None:
        self._deadlines: dict[KeyT, tuple[int, int]] | None = None
        """None: there are no deadlines."""
        self._heap: list[tuple[int, int, KeyT]] = _NOTHING
        self._serial = 0

    def set(self, key: KeyT, at: int | None) -> None:
        """Sets the deadline of `key`, in place of an earlier one. None: removes it."""
        if at is None:
            self.cancel(key)
            return
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
