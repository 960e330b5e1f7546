"""The clock that epochs are taken from: that of the root, in the whole network (§5.1).

If each node took epochs from its own clock, a node whose clock is ahead would grant epochs that its parent
does not reach for a while. If the node then dies, the parent takes its subtree back with all that was cut out
of it, and the epochs of those cuts would fall.

So the root begins with its wall clock, and each node learns the reading of its parent's clock with each grant
and renewal. In between it counts on with its monotonic clock. An answer takes time, so a child's clock is
behind that of its parent, but for the drift of a few seconds. A lease ends later than that.

The root's clock does not go back when the root restarts: the root saves a limit that its clock has not
reached, raises it in time, and begins its next run above it. A run may end before it has saved a limit, so
the next run begins later by what the wall clock has advanced since the limit was saved.
"""

from __future__ import annotations

from typing import Final

from hbroker.protocol import timers
from hbroker.protocol.storage import EpochLimit, Storage

__all__ = ["EpochClock"]

LIMIT_AHEAD_MS: Final = 60_000
"""How far ahead of the clock the saved limit is. The root saves it once in half of that time."""
AHEAD_OF_ROOT_MS: Final = timers.LEASE // 1000
"""How far the clock of another node may be ahead of that of a root whose disk was late with the limit."""
MOST: Final = 1 << 62
"""Readings from here on make no sense, and would use up the epochs that are left."""


class EpochClock:
    """Milliseconds since the Unix epoch, by the root's clock. `now` is in microseconds of the monotonic
    clock, to which `unix_offset_us` is added until a parent has told its reading."""

    def __init__(self, storage: Storage, unix_offset_us: int) -> None:
        self._storage = storage
        self._unix_offset_us = self._offset_us = unix_offset_us
        self._limit_due: int | None = None
        """When the root saves its next limit; None: this node is not the root."""

    def begin(self, now: int, last: EpochLimit | None) -> None:
        """This node is the root, and begins. `last`: what an earlier run saved."""
        if last is not None:
            advanced = max(0, self._wall_at(now) - last.saved_at)
            behind = last.limit + AHEAD_OF_ROOT_MS + advanced - self.at(now)
            self._offset_us += max(0, behind) * 1000
        self._save_limit(now)

    def follow(self, now: int, reading: int) -> None:
        """Takes the reading of a parent's clock. One that makes no sense is ignored."""
        if 0 < reading < MOST:
            self._offset_us = reading * 1000 - now

    def handle_timeout(self, now: int) -> None:
        """Saves the next limit, if it is due."""
        if self._limit_due is not None and now >= self._limit_due:
            self._save_limit(now)

    def at(self, now: int) -> int:
        """The reading: the lowest epoch to grant at `now`."""
        return (now + self._offset_us) // 1000

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return self._limit_due

    def _save_limit(self, now: int) -> None:
        self._storage.save_epoch_limit(EpochLimit(self.at(now) + LIMIT_AHEAD_MS, self._wall_at(now)))
        self._limit_due = now + LIMIT_AHEAD_MS * 500

    def _wall_at(self, now: int) -> int:
        return (now + self._unix_offset_us) // 1000
