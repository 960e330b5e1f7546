"""What becomes of clients' wills (§6.6), as exact rules.

A tracked will is the will of one client process, under any message ids. Its owner *may* publish it when the
session may have been without a link for the will's delay. That time begins when a node that serves its topic,
or did, lost its link to the session for another reason than LEAVE. If the topic has moved to another owner
since, which may have waited for the client in vain, it begins an idle timeout after the will was set.

- *Not before*: no client receives a will before its owner may publish it.
- *Not doubled*: an application receives no will twice at QoS 2 under one message id.
- *Due*: if a client dies whose will an owner keeps, and no run resumes its session, the will comes by the end
  to every client that is subscribed at QoS 1 or 2 all the time, unless an owner of its topic died in the
  meantime, or the queue of that client's session overflowed. If that owner lost its lease, the will comes
  when the owner serves the topic again, to persistent sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hbroker._native import Message
from hbroker.protocol import timers

from ..invariants import Invariant, Ownership, Violation
from ..world import Address
from .applications import Application
from .losses import Losses

__all__ = ["TrackedWill", "Wills"]

DRIFT: Final = 0.07
"""The most by which the rates of two clocks of one network may differ."""
LATEST: Final = 40 * timers.SECOND
"""A will that comes has come after this time: an idle timeout, a handover, retries."""


@dataclass(slots=True, eq=False)
class TrackedWill:
    """One client process's will. `delay`: in microseconds."""

    client: str
    session: int
    topic: str
    qos: int
    payload: bytes
    delay: int
    made_at: int
    confirmed_at: int | None = None
    """When its client last learned that an owner keeps it."""
    broke_at: int | None = None
    """When its session may first have lost its link."""
    died_at: int | None = None
    """When its client died; None: it runs, or ended with DISCONNECT."""
    is_void: bool = False
    """Whether it need not be published: another run came, or the owner that kept it is lost."""
    lapsed_at: int | None = None
    """When the owner that kept it lost its lease, and none has kept it since."""
    resumed_at: int | None = None
    """When that owner served its topic again."""
    received_ids: set[tuple[int, int, int]] = field(default_factory=set)
    """(incarnation, publisher, sequence) of the clients that received it at QoS 2."""
    receivers: set[str] = field(default_factory=set)
    """The clients that received it."""

    def __str__(self) -> str:
        return f"{self.client}'s will to {self.topic} at QoS {self.qos}"


class Wills:
    """All wills of one run."""

    def __init__(self, ownership: Ownership, now: Callable[[], int], losses: Losses) -> None:
        self._ownership = ownership
        self._now = now
        self._losses = losses
        self._by_payload: dict[bytes, TrackedWill] = {}
        self._of_session: dict[int, TrackedWill] = {}

    # Change

    def add(self, tracked: TrackedWill) -> None:
        """A client sets its will."""
        self._by_payload[tracked.payload] = tracked
        self._of_session[tracked.session] = tracked

    def confirm(self, session: int) -> None:
        """A client learned that an owner keeps its will."""
        if tracked := self._of_session.get(session):
            tracked.confirmed_at = self._now()
            tracked.is_void = False
            tracked.lapsed_at = tracked.resumed_at = None
            tracked.receivers.clear()

    def client_died(self, session: int) -> None:
        """A client process died."""
        if tracked := self._of_session.get(session):
            tracked.died_at = self._now()

    def client_resumed(self, session: int) -> None:
        """Another run of a client began: it may be back in time."""
        if tracked := self._of_session.get(session):
            tracked.is_void = True

    def lose_link(self, session: int, node: Address, reason: str) -> None:
        """A node has lost its link to a session."""
        tracked = self._of_session.get(session)
        if tracked is None or node not in self._ownership.past[tracked.topic]:
            return
        if reason != "closed" and tracked.broke_at is None:
            tracked.broke_at = self._now()

    def lose(self, topics: Iterable[str]) -> None:
        """The owner of these topics is lost, with the wills that it kept."""
        lost = set(topics)
        for tracked in self._of_session.values():
            tracked.is_void |= tracked.topic in lost

    def end_lease(self, topics: Iterable[str]) -> None:
        """The owner of these topics has lost its lease, and lives."""
        lapsed = set(topics)
        for tracked in self._of_session.values():
            if tracked.topic in lapsed:
                tracked.lapsed_at, tracked.resumed_at = self._now(), None

    def resume(self, topics: Iterable[str]) -> None:
        """An owner that had lost its lease serves these topics again."""
        resumed = set(topics)
        for tracked in self._of_session.values():
            if tracked.topic in resumed and tracked.lapsed_at is not None:
                tracked.resumed_at = self._now()

    # Checks

    @property
    def topics(self) -> set[str]:
        """The topics of all wills."""
        return {tracked.topic for tracked in self._by_payload.values()}

    def read(self, application: Application, message: Message) -> Iterator[Violation] | None:
        """A client received a message; None: it is not a will."""
        tracked = self._by_payload.get(message.payload)
        return None if tracked is None else self._receive(application, message, tracked)

    def check_at_end(self, applications: Iterable[Application]) -> Iterator[Violation]:
        """Checks whether the wills of clients that died came to their subscribers."""
        present = list(applications)
        for tracked in self._by_payload.values():
            if not self._is_due(tracked):
                continue
            for application in present:
                if self._losses.has_lost(application.host.session, tracked.died_at or 0):
                    continue
                if application.name not in tracked.receivers and _was_subscribed(application, tracked):
                    text = f"{tracked} never came to {application.name}"
                    yield Violation(self._now(), Invariant.WILLS, text)

    def _receive(
        self, application: Application, message: Message, tracked: TrackedWill
    ) -> Iterator[Violation]:
        tracked.receivers.add(application.name)
        if self._now() < self._may_be_published_from(tracked):
            text = f"{application.name} gets {tracked}, and its session has not broken off for long enough"
            yield Violation(self._now(), Invariant.WILLS, text)
        key = application.host.incarnation, message.publisher, message.sequence
        if message.qos == 2 and key in tracked.received_ids:
            yield Violation(self._now(), Invariant.WILLS, f"{application.name} gets {tracked} twice")
        tracked.received_ids.add(key)

    def _may_be_published_from(self, tracked: TrackedWill) -> float:
        """The earliest time at which it may be published, by any clock."""
        starts = [] if tracked.broke_at is None else [float(tracked.broke_at)]
        if self._ownership.changed.get(tracked.topic, 0) >= tracked.made_at:
            starts.append(tracked.made_at + timers.IDLE_TIMEOUT * (1 - DRIFT))
        return min(starts, default=float("inf")) + tracked.delay * (1 - DRIFT)

    def _is_due(self, tracked: TrackedWill) -> bool:
        died, confirmed = tracked.died_at, tracked.confirmed_at
        if died is None or confirmed is None or tracked.qos == 0 or tracked.is_void:
            return False
        if tracked.lapsed_at is not None:
            if tracked.resumed_at is None:
                return False
            died = max(died, tracked.resumed_at)
        return self._now() - died > LATEST + tracked.delay * (1 + DRIFT)


def _was_subscribed(application: Application, tracked: TrackedWill) -> bool:
    """Whether a client has been subscribed to a will's topic since before the will's client died."""
    died = tracked.died_at
    if died is None or application.broken.get(tracked.topic, 0) >= died or application.began_at >= died:
        return False
    if tracked.lapsed_at is not None and not application.expiry:
        return False
    interests = (i for i in application.interests.values() if i.qos and not i.group)
    wholes = (i.since if tracked.lapsed_at is None else i.kept for i in interests)
    return any(whole.get(tracked.topic, died + 1) <= died for whole in wholes)
