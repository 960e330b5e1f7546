"""An owner whose subscribers are on their way back (§5.8).

By a handover an owner is given the subscriptions of what it comes to own. Others are given none: one that
was killed and starts again, one that lost its lease and has it anew, and a parent that takes back what a
silent child held. Publishers repeat to it
at once what was not acknowledged; subscribers need until they notice. If it served meanwhile it would
acknowledge to nobody's good. So it refuses, until they are back, what must reach them: QoS 1 and 2.

In the first two cases it knows for whom to wait, after a restart from the memory of its earlier run, and
waits for those alone, for as long as a silent session lives. After it took back it does not know, and waits
for as long as they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hbroker._native import filter_touches
from hbroker.protocol import timers
from hbroker.protocol.admission import STATUS_ROOT
from hbroker.protocol.agenda import Agenda
from hbroker.protocol.jurisdiction import Jurisdiction
from hbroker.protocol.subscribers import Subscription
from hbroker.subtree import is_within

__all__ = ["Gathering"]


class Gathering:
    """For whom a node waits, and where.

    `recalled`: the subscriptions that its earlier run held; `note` is told (with True) which have ended.
    """

    def __init__(
        self,
        jurisdiction: Jurisdiction,
        recalled: Iterable[Subscription],
        note: Callable[[Subscription, bool], None],
    ) -> None:
        self._jurisdiction = jurisdiction
        self._note = note
        self._missed = {(s.session, s.key): s for s in recalled}
        self._returned: set[str] = set()
        self._ends: Agenda[str] = Agenda()
        self._sessions_end: int | None = None

    # Change

    def start(self, now: int) -> None:
        """Those who do not come back within the life of a session will not."""
        if self._missed:
            self._sessions_end = now + timers.IDLE_TIMEOUT

    def handle_loss(self, now: int, subscriptions: Iterable[Subscription]) -> None:
        """The node's lease has ended, and with it these subscriptions: it may come to serve them again."""
        self._missed.update(((s.session, s.key), s) for s in subscriptions)
        self.start(now)

    def handle_return(self, subtree: str) -> None:
        """The node is about to serve a subtree: again, if somebody is missed there."""
        if any(filter_touches(s.filter, subtree) for s in self._missed.values()):
            self._returned.add(subtree)
            self._jurisdiction.gather(subtree)

    def handle_take_back(self, now: int, subtree: str, epoch: int) -> None:
        """A child's lease, under this epoch, has ended without a handover."""
        if not is_within(subtree, STATUS_ROOT):
            self._ends.set(subtree, now + timers.RETURN)
            self._jurisdiction.gather(subtree, epoch + 1)

    def handle_subscribed(self, subscription: Subscription) -> None:
        """Somebody has subscribed."""
        back = self._missed.pop((subscription.session, subscription.key), None)
        if back is not None and not self._missed:
            self._end_return()

    def handle_timeout(self, now: int) -> None:
        """Waits no longer than it must."""
        for subtree in self._ends.due(now):
            self._jurisdiction.gathered(subtree)
        if self._sessions_end is not None and now >= self._sessions_end:
            for subscription in self._missed.values():
                self._note(subscription, True)
            self._missed.clear()
            self._end_return()

    # Read

    def poll_timeout(self) -> int | None:
        """When to call `handle_timeout` next."""
        return min((t for t in (self._ends.next(), self._sessions_end) if t is not None), default=None)

    def _end_return(self) -> None:
        self._sessions_end = None
        for subtree in self._returned:
            self._jurisdiction.gathered(subtree)
        self._returned.clear()
