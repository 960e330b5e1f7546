"""An owner whose subscribers are on their way back (§5.8).

By a handover an owner is given the subscriptions of what it comes to own. Others are given none: one that
was killed and starts again, one that lost its lease and has it anew, and a parent that takes back what a
silent child held. Publishers repeat to it
at once what was not acknowledged; subscribers need until they notice. If it served meanwhile it would
acknowledge to nobody's good. So it refuses, until they are back, what must reach them: QoS 1 and 2.

In the first two cases it knows for whom to wait: for those who were connected, after a restart by the memory
of its earlier run. A restarted owner makes their sessions again, as away, for as long as a silent one lives
(`OwnerSubscriptions.restore`); so it needs to refuse for no longer than a connected subscriber may leave
messages unanswered (§7.3): from then on they are queued. For whoever was away before it does not wait. After
it took back it does not know who is missing, and refuses for as long as they need.

Subscribers do not come sooner because the subtree moves on meanwhile: whoever is handed it, or a part of it,
or what is around it, gathers there for the rest of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from hbroker._native import filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.hierarchy.jurisdiction import Jurisdiction
from hbroker.protocol.hierarchy.parent.admission import STATUS_ROOT
from hbroker.protocol.subscriptions.owner.store import Subscription
from hbroker.protocol.timer_queue import TimerQueue
from hbroker.subtree import is_within

__all__ = ["Recovery"]

FINDING: Final = round(timers.RETRY_MOST * (1 + timers.RETRY_JITTER))
"""How long a subscriber that found the subtree on the move takes to ask again: so long, at least, its new
owner gathers."""
PATIENCE: Final = 2 * timers.SECOND
"""How long a restarted owner waits for those who were connected, as for any subscriber that does not answer
(§7.3)."""
SETTLING: Final = timers.SECOND // 2
"""How long it waits at least from when it serves: who came before that is to ask again."""


class Recovery:
    """For whom a node waits, and where.

    `recalled`: the subscriptions of those who were connected to its earlier run. `note` is told, with True,
    which of them nobody has come back for.
    `clock` tells the time. `forgets`: there were others that are not known, so it waits for as long as a
    silent session lives, and calls `know`.
    """

    def __init__(
        self,
        jurisdiction: Jurisdiction,
        recalled: Iterable[Subscription],
        note: Callable[[Subscription, bool], None],
        clock: Callable[[], int],
        *,
        forgets: bool = False,
        know: Callable[[], None] = lambda: None,
    ) -> None:
        self._jurisdiction = jurisdiction
        self._note = note
        self._clock = clock
        self._missed = {(s.session, s.key): s for s in recalled}
        self._recalled = set(self._missed)
        self._forgets = forgets
        self._know = know
        self._returned: dict[str, int] = {}
        """Where those missed are waited for, and until when."""
        self._patient_until = 0
        """Until when a restarted owner refuses what they must have."""
        self._ends: dict[str, int] = {}
        """Until when, where nobody knows who is missed."""
        self._timers: TimerQueue[tuple[str, str]] = TimerQueue()
        self._sessions_end: int | None = None

    # Change

    def start(self, now: int) -> None:
        """Those who do not come back within the life of a session will not."""
        if self._missed or self._forgets:
            self._sessions_end = now + timers.IDLE_TIMEOUT
            self._patient_until = now + (timers.IDLE_TIMEOUT if self._forgets else PATIENCE)

    def handle_loss(self, now: int, subscriptions: Iterable[Subscription]) -> None:
        """The node's lease has ended, and with it these subscriptions, of those who are connected: it may
        come to serve them again."""
        self._missed.update(((s.session, s.key), s) for s in subscriptions)
        if self._missed:
            self._sessions_end = self._patient_until = now + timers.IDLE_TIMEOUT

    def handle_return(self, now: int, subtree: str) -> None:
        """The node is about to serve a subtree: again, if somebody is missed there."""
        if self._is_missed_in(subtree):
            until = self._returned[subtree] = max(self._patient_until, now + SETTLING)
            self._timers.set((_MISSED, subtree), until)
            self._jurisdiction.gather(subtree)

    def handle_take_back(self, now: int, subtree: str, epoch: int) -> None:
        """A child's lease, under this epoch, has ended without a handover."""
        if not is_within(subtree, STATUS_ROOT):
            self._wait(now, subtree, timers.RETURN, epoch + 1)

    def take_over(self, now: int, subtree: str, records: Iterable[pb.GatheringRecord]) -> None:
        """The node is about to serve a subtree of which its owner until now was gathering these parts."""
        for record in records:
            if is_within(record.subtree, subtree):
                self._wait(now, record.subtree, min(record.remaining_us, timers.RETURN), record.epoch)

    def handle_subscribed(self, subscription: Subscription) -> None:
        """Somebody has subscribed."""
        back = self._missed.pop((subscription.session, subscription.key), None)
        if back is not None and not self._missed and not self._forgets:
            self._end_return()

    def handle_timeout(self, now: int) -> None:
        """Waits no longer than it must."""
        for kind, subtree in self._timers.due(now):
            (self._returned if kind is _MISSED else self._ends).pop(subtree)
            self._review(subtree)
        if self._sessions_end is not None and now >= self._sessions_end:
            for key, subscription in self._missed.items():
                if key in self._recalled:
                    self._note(subscription, True)
            self._missed.clear()
            self._recalled.clear()
            if self._forgets:
                self._forgets = False
                self._know()
            self._end_return()

    # Read

    def poll_timeout(self) -> int | None:
        """When to call `handle_timeout` next."""
        return min((t for t in (self._timers.next(), self._sessions_end) if t is not None), default=None)

    def records(self, subtree: str) -> Iterator[pb.GatheringRecord]:
        """What of a subtree is gathering, for a new owner of it."""
        now, remaining = self._clock(), dict[str, int]()
        for part, until in self._ends.items():
            if common := _common(part, subtree):
                remaining[common] = max(remaining.get(common, 0), until - now, FINDING)
        for part, until in self._returned.items():
            common = _common(part, subtree)
            if common and self._is_missed_in(common):
                remaining[common] = max(remaining.get(common, 0), until - now)
        for part, left in remaining.items():
            epoch = self._jurisdiction.gathering_epoch(part)
            yield pb.GatheringRecord(subtree=part, remaining_us=max(left, 1), epoch=epoch)

    def _wait(self, now: int, subtree: str, period: int, epoch: int) -> None:
        until = self._ends[subtree] = max(now + period, self._ends.get(subtree, 0))
        self._timers.set((_UNKNOWN, subtree), until)
        self._jurisdiction.gather(subtree, epoch)

    def _is_missed_in(self, subtree: str) -> bool:
        return self._forgets or any(filter_touches(s.filter, subtree) for s in self._missed.values())

    def _end_return(self) -> None:
        self._sessions_end = None
        returned, self._returned = self._returned, {}
        for subtree in returned:
            self._timers.cancel((_MISSED, subtree))
            self._review(subtree)

    def _review(self, subtree: str) -> None:
        if subtree not in self._ends and subtree not in self._returned:
            self._jurisdiction.gathered(subtree)


_MISSED: Final = "missed"
_UNKNOWN: Final = "unknown"
"""Who is waited for somewhere."""


def _common(part: str, subtree: str) -> str | None:
    """What lies in both; None: nothing does."""
    if is_within(part, subtree):
        return part
    return subtree if is_within(subtree, part) else None
