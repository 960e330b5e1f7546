"""An owner whose subscribers are on their way back (§5.8).

By a handover an owner is given the subscriptions of what it comes to own. Others are given none: one that
was killed and starts again, one that lost its lease and has it anew, and a parent that takes back what a
silent child held. Publishers repeat to it
at once what was not acknowledged; subscribers need until they notice. If it served meanwhile it would
acknowledge to nobody's good. So it refuses, until they are back, what must reach them: QoS 1 and 2.

In the first two cases it knows for whom to wait, after a restart from the memory of its earlier run, and
waits for those alone, for as long as a silent session lives. After it took back it does not know, and waits
for as long as they need.

Subscribers do not come sooner because the subtree moves on meanwhile: whoever is handed it, or a part of it,
or what is around it, gathers there for the rest of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from hbroker._native import filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.admission import STATUS_ROOT
from hbroker.protocol.agenda import Agenda
from hbroker.protocol.jurisdiction import Jurisdiction
from hbroker.protocol.subscribers import Subscription
from hbroker.subtree import is_within

__all__ = ["Gathering"]

FINDING: Final = round(timers.RETRY_MOST * (1 + timers.RETRY_JITTER))
"""How long a subscriber that found the subtree on the move takes to ask again: so long, at least, its new
owner gathers."""


class Gathering:
    """For whom a node waits, and where.

    `recalled`: the subscriptions that its earlier run held; `note` is told (with True) which have ended.
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
        self._forgets = forgets
        self._know = know
        self._returned: set[str] = set()
        """Where those missed are waited for."""
        self._ends: dict[str, int] = {}
        """Until when, where nobody knows who is missed."""
        self._agenda: Agenda[str] = Agenda()
        self._sessions_end: int | None = None

    # Change

    def start(self, now: int) -> None:
        """Those who do not come back within the life of a session will not."""
        if self._missed or self._forgets:
            self._sessions_end = now + timers.IDLE_TIMEOUT

    def handle_loss(self, now: int, subscriptions: Iterable[Subscription]) -> None:
        """The node's lease has ended, and with it these subscriptions: it may come to serve them again."""
        self._missed.update(((s.session, s.key), s) for s in subscriptions)
        self.start(now)

    def handle_return(self, subtree: str) -> None:
        """The node is about to serve a subtree: again, if somebody is missed there."""
        if self._is_missed_in(subtree):
            self._returned.add(subtree)
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
        for subtree in self._agenda.due(now):
            del self._ends[subtree]
            self._review(subtree)
        if self._sessions_end is not None and now >= self._sessions_end:
            for subscription in self._missed.values():
                self._note(subscription, True)
            self._missed.clear()
            if self._forgets:
                self._forgets = False
                self._know()
            self._end_return()

    # Read

    def poll_timeout(self) -> int | None:
        """When to call `handle_timeout` next."""
        return min((t for t in (self._agenda.next(), self._sessions_end) if t is not None), default=None)

    def records(self, subtree: str) -> Iterator[pb.GatheringRecord]:
        """What of a subtree is gathering, for a new owner of it."""
        now, remaining = self._clock(), dict[str, int]()
        for part, until in self._ends.items():
            if common := _common(part, subtree):
                remaining[common] = max(remaining.get(common, 0), until - now, FINDING)
        for part in self._returned:
            common = _common(part, subtree)
            if common and self._sessions_end is not None and self._is_missed_in(common):
                remaining[common] = max(remaining.get(common, 0), self._sessions_end - now)
        for part, left in remaining.items():
            epoch = self._jurisdiction.gathering_epoch(part)
            yield pb.GatheringRecord(subtree=part, remaining_us=max(left, 1), epoch=epoch)

    def _wait(self, now: int, subtree: str, period: int, epoch: int) -> None:
        until = self._ends[subtree] = max(now + period, self._ends.get(subtree, 0))
        self._agenda.set(subtree, until)
        self._jurisdiction.gather(subtree, epoch)

    def _is_missed_in(self, subtree: str) -> bool:
        return self._forgets or any(filter_touches(s.filter, subtree) for s in self._missed.values())

    def _end_return(self) -> None:
        self._sessions_end = None
        returned, self._returned = self._returned, set()
        for subtree in returned:
            self._review(subtree)

    def _review(self, subtree: str) -> None:
        if subtree not in self._ends and subtree not in self._returned:
            self._jurisdiction.gathered(subtree)


def _common(part: str, subtree: str) -> str | None:
    """What lies in both; None: nothing does."""
    if is_within(part, subtree):
        return part
    return subtree if is_within(subtree, part) else None
