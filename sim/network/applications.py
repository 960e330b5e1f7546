"""What applications did and got, as the watchers of a run write it down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from .actions import USUAL, Queue
from .hosts import ClientHost
from .world import START

__all__ = ["Application", "Interest", "MessageId", "Sent"]

WHOLE: Final = 1_000
"""A payload of so many bytes goes in one datagram, over any path."""
AHEAD: Final = 0.05
"""By how much a node's clock may be too fast."""
PART_WAIT: Final = 30_000_000
"""How long a subscriber waits for a message's next part (§9)."""

MessageId: TypeAlias = tuple[int, int]
"""(publisher's run, sequence number)."""


@dataclass(slots=True)
class Sent:
    """A message, as its publisher published it. `id`: of the publisher's run, and of the message in it."""

    publisher: str
    id: MessageId
    topic: str
    qos: int
    retain: bool
    payload: bytes
    at: int
    acknowledged: int | None = None
    """When its publisher learned that it is distributed."""
    dies_at: int | None = None
    """When it is worth nothing any more; None: never."""

    @property
    def may_be_in_parts(self) -> bool:
        """Whether one datagram may be too small for it (§7.5)."""
        return len(self.payload) > WHOLE

    def is_open_at(self, then: int) -> bool:
        """Whether it had been published by then, and its publisher had no PUBACK."""
        return self.at <= then and (self.acknowledged is None or self.acknowledged >= then)

    def may_be_dead(self, now: int) -> bool:
        """Whether it has expired by the clock of any node (§5.6)."""
        return self.dies_at is not None and now + (now - START) * AHEAD >= self.dies_at

    def __str__(self) -> str:
        what = "retained message" if self.retain else "message"
        return f"{self.publisher}'s {what} {self.id[1]} to {self.topic} at QoS {self.qos}"


@dataclass(slots=True, eq=False)
class Interest:
    """A subscription. `since`: for each topic for which it is whole, from when. One of a session that is kept
    is the same in the client's next run."""

    filter: str
    qos: int
    topics: tuple[str, ...]
    asked_at: int
    group: str = ""
    queue: Queue = USUAL
    since: dict[str, int] = field(default_factory=dict)
    connected: dict[str, int] = field(default_factory=dict)
    """The same, but for breaks in which no link was lost."""
    kept: dict[str, int] = field(default_factory=dict)
    """The same, but for leases that ended while their owners lived: what waits for a session stays (§5.6)."""
    made_at: int | None = None
    """When all owners had it for the first time, or had it again after one had told that it did not."""
    is_awaited: bool = True
    """Whether this run was not told yet what became of it."""

    @property
    def key(self) -> tuple[str, str]:
        """What its session has one subscription for."""
        return self.group, self.filter

    @property
    def title(self) -> str:
        """As applications write it."""
        return f"$share/{self.group}/{self.filter}" if self.group else self.filter

    @property
    def is_made(self) -> bool:
        return self.made_at is not None

    def hold(self, topic: str, now: int) -> None:
        """It is whole for a topic from now on, if it was not before."""
        self.since.setdefault(topic, now)
        self.connected.setdefault(topic, now)
        self.kept.setdefault(topic, now)

    def end(self, topic: str) -> None:
        """The session ended at who serves a topic, or its link is lost and it ends with that."""
        self.since.pop(topic, None)
        self.connected.pop(topic, None)
        self.kept.pop(topic, None)


@dataclass(slots=True, eq=False)
class Application:
    """What one client process asked for and got. `expiry`: how long its session lives without a link."""

    name: str
    host: ClientHost
    began_at: int
    expiry: int = 0
    interests: dict[int, Interest] = field(default_factory=dict)
    past: list[Interest] = field(default_factory=list)
    """What its session, where that is kept, asked for before: in an earlier run, or until it ended it. (An
    owner may have sent some of that before it reads that this run begins clean, §6.4.) Also what an
    application that reads slowly asked for: it may still have to read what came for that."""
    ended_at: int | None = None
    """When the process ended; None: it runs."""
    former: Application | None = None
    """The run before, where this one took its session up."""
    read: int = 0
    results: int = 0
    had: dict[MessageId, set[int]] = field(default_factory=dict)
    """The QoS at which it had each message."""
    last: dict[tuple[int, str], Sent] = field(default_factory=dict)
    """The latest message of each publisher's run and topic."""
    retained: set[MessageId] = field(default_factory=set)
    """What it had as retained messages."""
    received_by: set[tuple[int, MessageId]] = field(default_factory=set)
    """Which of its subscriptions had which of them."""
    given_up: set[MessageId] = field(default_factory=set)
    """What it lacks because its parts stopped coming."""
    broken: dict[str, int] = field(default_factory=dict)
    """When it last lost its link to who served, or had served, each topic."""

    @property
    def is_gone(self) -> bool:
        return self.ended_at is not None

    def succeed(self, former: Application) -> None:
        """Has the session of an earlier run, but begins clean."""
        self.past = [*former.past, *former.interests.values()]

    def follow(self, former: Application) -> None:
        """Takes the session of an earlier run up."""
        self.succeed(former)
        self.former = former
        self.broken = dict(former.broken)

    def interest(self, wanted: Interest) -> Interest:
        """The subscription that it asks for: where the run before had it, that one."""
        known = self.former.interests if self.former else {}
        for number, interest in known.items():
            if (interest.key, interest.qos) == (wanted.key, wanted.qos):
                interest.is_awaited = True
                return known.pop(number)
        return wanted

    def withdraw(self, subscription: int) -> Interest | None:
        """It wants a subscription no more, or could not have it."""
        interest = self.interests.pop(subscription, None)
        if interest is not None and (self.expiry or self.host.pace is not None):
            self.past.append(interest)
        return interest

    def has_had(self, message: MessageId) -> bool:
        """Whether this run, or one before in the same session, had a message."""
        is_former = self.former is not None and self.former.has_had(message)
        return message in self.had or is_former

    def may_lack(self, sent: Sent) -> bool:
        """Whether it need not have a message: because it had it, or the run before may have had parts of it,
        which died with that, or it gave the message up, because the next part was too long in coming."""
        is_cut_short = sent.may_be_in_parts and (self._may_follow(sent) or self._gave_up(sent))
        return self.has_had(sent.id) or is_cut_short

    def _may_follow(self, sent: Sent) -> bool:
        """Whether an earlier run of its session was there for a message: parts that it answered do not come
        again. One that was published while none was there comes whole."""
        ended_at = None if self.former is None else self.former.ended_at
        return ended_at is not None and sent.at <= ended_at

    def _gave_up(self, sent: Sent) -> bool:
        """§7.5: parts of it were acknowledged, and count for the publisher that comes back with the rest.
        It counts each message that it gives up, so it may lack no more than those."""
        if sent.acknowledged is None or sent.acknowledged - sent.at <= PART_WAIT:
            return False
        self.given_up.add(sent.id)
        return len(self.given_up) <= self.host.engine.counters().get("drop.incomplete", 0)
