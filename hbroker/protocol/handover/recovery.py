"""Recovery: an owner waits until its subscribers are back (§5.8).

A handover gives a new owner the subscriptions of its subtree. Three owners get none: a node that was killed
and starts again, a node whose lease ended and that is granted the subtree anew, and a parent that takes back
the subtree of a silent child. Publishers send again at once what was not acknowledged, while subscribers need
time to notice. If the owner served meanwhile, it would acknowledge messages that reach nobody. So it refuses
messages of QoS 1 and 2 until the subscribers are back.

In the first two cases the owner knows for whom to wait: for the sessions that were connected. After a restart
it knows them from its files. It then makes these sessions again, offline, for an idle timeout
(`OwnerSubscriptions.restore`). So it refuses messages only for as long as a connected subscriber may leave
them unacknowledged (§7.3); from then on they are queued. It does not wait for sessions that were offline.
After a subtree was taken back, the owner does not know who is missing, and waits for the whole return time.

Subscribers do not come sooner if the subtree moves meanwhile. So the target that gets the subtree, a part of
it, or a larger subtree around it is in recovery there for the rest of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from hbroker._native import filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.context import NodeContext
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.protocol.timers import TimerQueue, earliest
from hbroker.subtree import is_within

__all__ = ["Recovery"]

DISCOVERY_TIME: Final = round(timers.RETRY_MOST * (1 + timers.RETRY_JITTER))
"""Microseconds in which a subscriber that found the subtree on the move asks again. The new owner is in
recovery for at least this time."""
MISSING_TIMEOUT: Final = 2 * timers.SECOND
"""Microseconds that a restarted owner waits for the sessions that were connected, as for any subscriber that
does not acknowledge (§7.3)."""
MIN_RECOVERY: Final = timers.SECOND // 2
"""Microseconds that it waits at least after it begins to serve: a subscriber that came before that asks
again."""

_MISSED: Final = "missed"
_UNKNOWN: Final = "unknown"
_MOVED: Final = "moved"
"""The kinds of recovery: this node knows which subscribers are missing; nobody does; an earlier owner did."""


class Recovery:
    """For whom a node waits, and in which subtrees.

    `restored`: the subscriptions of the sessions that were connected to the earlier run.
    `has_lost_subscriptions`: there were others that are unknown, so the node waits for a whole idle timeout.
    """

    def __init__(
        self, context: NodeContext, restored: Iterable[Subscription], *, has_lost_subscriptions: bool
    ) -> None:
        self._context = context
        self._jurisdiction = context.jurisdiction
        self._missing = {(s.session, s.key): s for s in restored}
        self._restored = set(self._missing)
        self._has_lost_subscriptions = has_lost_subscriptions
        self._returned: dict[str, int] = {}
        """Subtrees in which known subscribers are missing, and until when the node waits."""
        self._patient_until = 0
        """Until when a restarted owner refuses messages that missing subscribers must get."""
        self._ends: dict[str, int] = {}
        """Subtrees in which it is unknown who is missing, and until when the node waits."""
        self._moved: dict[str, int] = {}
        """Subtrees that came here while they were in recovery, and whose owner knew who is missing."""
        self._tables = {_MISSED: self._returned, _UNKNOWN: self._ends, _MOVED: self._moved}
        self._timers: TimerQueue[tuple[str, str]] = TimerQueue()
        self._sessions_end: int | None = None

    # Change

    def start(self, now: int) -> None:
        """Begins the recovery of a restarted node. A subscriber that does not come back within an idle
        timeout is gone."""
        if self._missing or self._has_lost_subscriptions:
            self._sessions_end = now + timers.IDLE_TIMEOUT
            self._patient_until = now + (
                timers.IDLE_TIMEOUT if self._has_lost_subscriptions else MISSING_TIMEOUT
            )

    def handle_loss(self, now: int, subscriptions: Iterable[Subscription]) -> None:
        """The node's lease ended, and with it these subscriptions of connected sessions. The node may serve
        them again."""
        self._missing.update(((s.session, s.key), s) for s in subscriptions)
        if self._missing:
            self._sessions_end = self._patient_until = now + timers.IDLE_TIMEOUT

    def handle_return(self, now: int, subtree: str) -> None:
        """The node is about to serve a subtree. If subscribers of it are missing, the subtree is in
        recovery."""
        if self._is_missed_in(subtree):
            until = self._returned[subtree] = max(self._patient_until, now + MIN_RECOVERY)
            self._timers.set((_MISSED, subtree), until)
            self._jurisdiction.begin_recovery(subtree)

    def handle_take_back(self, now: int, subtree: str, epoch: int) -> None:
        """A child's lease, under this epoch, ended without a handover."""
        if not is_within(subtree, STATUS_ROOT):
            self._wait(now, subtree, timers.RETURN, epoch + 1)

    def install_state(self, now: int, subtree: str, records: Iterable[pb.GatheringRecord]) -> None:
        """The node is about to serve a subtree. These parts of it were in recovery at its owner until now."""
        for record in records:
            if is_within(record.subtree, subtree):
                kind = _MOVED if record.known else _UNKNOWN
                self._wait(now, record.subtree, min(record.remaining_us, timers.RETURN), record.epoch, kind)

    def handle_subscribed(self, subscription: Subscription) -> None:
        """A subscription was made."""
        back = self._missing.pop((subscription.session, subscription.key), None)
        if back is not None and not self._missing and not self._has_lost_subscriptions:
            self._end_return()

    def handle_timeout(self, now: int) -> None:
        """Ends each recovery whose time is over."""
        for kind, subtree in self._timers.due(now):
            self._tables[kind].pop(subtree)
            self._review(subtree)
        if self._sessions_end is not None and now >= self._sessions_end:
            for key, subscription in self._missing.items():
                if key in self._restored:
                    self._context.storage.save_subscription(subscription, True)
            self._missing.clear()
            self._restored.clear()
            if self._has_lost_subscriptions:
                self._has_lost_subscriptions = False
                self._context.storage.clear_lost_subscriptions()
            self._end_return()

    # Read

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due next, in microseconds; None: never."""
        return earliest(self._timers.next(), self._sessions_end)

    def records(self, subtree: str) -> Iterator[pb.GatheringRecord]:
        """The records of the parts of a subtree that are in recovery, for its new owner."""
        now, remaining, unknown = self._context.clock(), dict[str, int](), set[str]()
        for kind, table in self._tables.items():
            is_unknown = kind is _UNKNOWN or (kind is _MISSED and self._has_lost_subscriptions)
            for part, until in table.items():
                common = _common(part, subtree)
                if not common or (kind is _MISSED and not self._is_missed_in(common)):
                    continue
                left = max(until - now, DISCOVERY_TIME if is_unknown else 1)
                remaining[common] = max(remaining.get(common, 0), left)
                if is_unknown:
                    unknown.add(common)
        for part, left in remaining.items():
            epoch, known = self._jurisdiction.recovery_epoch(part), part not in unknown
            yield pb.GatheringRecord(subtree=part, remaining_us=left, epoch=epoch, known=known)

    def _wait(self, now: int, subtree: str, period: int, epoch: int, kind: str = _UNKNOWN) -> None:
        ends = self._tables[kind]
        until = ends[subtree] = max(now + period, ends.get(subtree, 0))
        self._timers.set((kind, subtree), until)
        self._jurisdiction.begin_recovery(subtree, epoch)

    def _is_missed_in(self, subtree: str) -> bool:
        return self._has_lost_subscriptions or any(
            filter_touches(s.filter, subtree) for s in self._missing.values()
        )

    def _end_return(self) -> None:
        self._sessions_end = None
        returned = list(self._returned)
        self._returned.clear()
        for subtree in returned:
            self._timers.cancel((_MISSED, subtree))
            self._review(subtree)

    def _review(self, subtree: str) -> None:
        if not any(subtree in table for table in self._tables.values()):
            self._jurisdiction.end_recovery(subtree)


def _common(part: str, subtree: str) -> str | None:
    """The subtree that lies in both; None: they share nothing."""
    if is_within(part, subtree):
        return part
    return subtree if is_within(subtree, part) else None
