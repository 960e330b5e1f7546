"""What client processes asked for and received, as the checks of a run record it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ..actions import USUAL, Queue
from ..hosts import ClientHost
from ..world import START

__all__ = ["Application", "Interest", "MessageId", "Sent"]

WHOLE: Final = 1_000
"""A payload of at most this size fits into one datagram, over any path."""
AHEAD: Final = 0.05
"""The most by which a node's clock may be too fast."""
PART_WAIT: Final = 30_000_000
"""How long a subscriber waits for a message's next fragment (§9)."""

MessageId: TypeAlias = tuple[int, int]
"""(publisher's run, sequence number)"""


@dataclass(slots=True)
class Sent:
    """A published message. `id`: of the publisher's run, and of the message in it."""

    publisher: str
    id: MessageId
    topic: str
    qos: int
    retain: bool
    payload: bytes
    at: int
    acknowledged: int | None = None
    """When its publisher received the PUBACK that it is distributed."""
    dies_at: int | None = None
    """When it expires; None: never."""

    @property
    def may_be_in_parts(self) -> bool:
        """Whether one datagram may be too small for it (§7.5)."""
        return len(self.payload) > WHOLE

    def is_open_at(self, then: int) -> bool:
        """Whether it had been published at this time, and its publisher had no PUBACK."""
        return self.at <= then and (self.acknowledged is None or self.acknowledged >= then)

    def may_be_dead(self, now: int) -> bool:
        """Whether it has expired by the clock of any node (§5.6)."""
        return self.dies_at is not None and now + (now - START) * AHEAD >= self.dies_at

    def __str__(self) -> str:
        what = "retained message" if self.retain else "message"
        return f"{self.publisher}'s {what} {self.id[1]} to {self.topic} at QoS {self.qos}"


@dataclass(slots=True, eq=False)
class Interest:
    """A subscription.

    `since`: by topic, the time since which it is whole for that topic (see `deliveries`). In a persistent
    session it is the same object in the client's next run.
    """

    filter: str
    qos: int
    topics: tuple[str, ...]
    asked_at: int
    group: str = ""
    queue: Queue = USUAL
    since: dict[str, int] = field(default_factory=dict)
    connected: dict[str, int] = field(default_factory=dict)
    """As `since`, but a break does not end it while the owner has the session and the link to it."""
    kept: dict[str, int] = field(default_factory=dict)
    """As `since`, but the end of a lease whose owner lives does not end it: what waits for a session stays
    (§5.6)."""
    made_at: int | None = None
    """When all owners had it for the first time, or again after an owner reported that it did not."""
    is_awaited: bool = True
    """Whether this run has no result of it yet."""

    @property
    def key(self) -> tuple[str, str]:
        """A session has one subscription for each key."""
        return self.group, self.filter

    @property
    def title(self) -> str:
        """The filter as applications write it."""
        return f"$share/{self.group}/{self.filter}" if self.group else self.filter

    @property
    def is_made(self) -> bool:
        return self.made_at is not None

    def mark_whole(self, topic: str, now: int) -> None:
        """The subscription is whole for a topic from now on, if it was not before."""
        self.since.setdefault(topic, now)
        self.connected.setdefault(topic, now)
        self.kept.setdefault(topic, now)

    def end(self, topic: str) -> None:
        """The session ended at the owner of a topic, or its link is lost and the session ends with that."""
        self.since.pop(topic, None)
        self.connected.pop(topic, None)
        self.kept.pop(topic, None)


@dataclass(slots=True, eq=False)
class Application:
    """What one client process asked for and received. `expiry`: how long its session lives without a link."""

    name: str
    host: ClientHost
    began_at: int
    expiry: int = 0
    interests: dict[int, Interest] = field(default_factory=dict)
    past: list[Interest] = field(default_factory=list)
    """Former subscriptions of its session.

    They are of an earlier run, or of this one before it ended them. An owner may have sent some of their
    messages before it reads that this run starts clean (§6.4). Also those of an application that reads
    slowly: it may still have to read messages of them.
    """
    ended_at: int | None = None
    """When the process ended; None: it runs."""
    former: Application | None = None
    """The run before, if this one resumed its session."""
    read: int = 0
    results: int = 0
    received_qos: dict[MessageId, set[int]] = field(default_factory=dict)
    """By message, the QoS values at which it was received."""
    last: dict[tuple[int, str], Sent] = field(default_factory=dict)
    """By publisher's run and topic, the latest message."""
    retained: set[MessageId] = field(default_factory=set)
    """The messages that were received as retained messages."""
    received_by: set[tuple[int, MessageId]] = field(default_factory=set)
    """(subscription, message) of each retained message that was received."""
    abandoned: set[MessageId] = field(default_factory=set)
    """Messages that it lacks because their next fragment did not come in time."""
    broken: dict[str, int] = field(default_factory=dict)
    """By topic, when it last lost its link to the owner, or to a former owner."""

    @property
    def has_ended(self) -> bool:
        return self.ended_at is not None

    def start_clean(self, former: Application) -> None:
        """Has the session of an earlier run, but starts clean."""
        self.past = [*former.past, *former.interests.values()]

    def resume(self, former: Application) -> None:
        """Resumes the session of an earlier run."""
        self.start_clean(former)
        self.former = former
        self.broken = dict(former.broken)

    def interest(self, candidate: Interest) -> Interest:
        """The subscription that the client asks for; if the run before had it, that one."""
        known = self.former.interests if self.former else {}
        for number, interest in known.items():
            if (interest.key, interest.qos) == (candidate.key, candidate.qos):
                interest.is_awaited = True
                return known.pop(number)
        return candidate

    def withdraw(self, subscription: int) -> Interest | None:
        """The client does not want a subscription any more, or could not have it."""
        interest = self.interests.pop(subscription, None)
        if interest is not None and (self.expiry or self.host.pace is not None):
            self.past.append(interest)
        return interest

    def has_received(self, message: MessageId) -> bool:
        """Whether this run, or an earlier one of the same session, received a message."""
        is_former = self.former is not None and self.former.has_received(message)
        return message in self.received_qos or is_former

    def may_lack(self, sent: Sent) -> bool:
        """Whether it need not receive a message.

        That is so if it has received it, if the run before may have received fragments of it that were lost
        with that run, or if it gave the message up because the next fragment came too late.
        """
        is_cut_short = sent.may_be_in_parts and (self._may_continue(sent) or self._has_abandoned(sent))
        return self.has_received(sent.id) or is_cut_short

    def _may_continue(self, sent: Sent) -> bool:
        """Whether an earlier run of its session was present when a message was published.

        Fragments that such a run acknowledged do not come again. A message that was published while no run
        was present comes whole.
        """
        ended_at = None if self.former is None else self.former.ended_at
        return ended_at is not None and sent.at <= ended_at

    def _has_abandoned(self, sent: Sent) -> bool:
        """Whether the client gave a message up (§7.5).

        Fragments of it were acknowledged, and count for the publisher, which sends the rest later. The client
        counts each message that it gives up, so it may lack no more than that number.
        """
        if sent.acknowledged is None or sent.acknowledged - sent.at <= PART_WAIT:
            return False
        self.abandoned.add(sent.id)
        return len(self.abandoned) <= self.host.engine.counters().get("drop.incomplete", 0)
