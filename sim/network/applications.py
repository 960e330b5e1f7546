"""What applications did and got, as the watchers of a run write it down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from .hosts import ClientHost

__all__ = ["Application", "Interest", "MessageId", "Sent"]

WHOLE: Final = 1_000
"""A payload of so many bytes goes in one datagram, over any path."""
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

    @property
    def may_be_in_parts(self) -> bool:
        """Whether one datagram may be too small for it (§7.5)."""
        return len(self.payload) > WHOLE

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
    since: dict[str, int] = field(default_factory=dict)
    connected: dict[str, int] = field(default_factory=dict)
    """The same, but for breaks in which no link was lost."""
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

    def end(self, topic: str) -> None:
        """The session ended at who serves a topic, or its link is lost and it ends with that."""
        self.since.pop(topic, None)
        self.connected.pop(topic, None)


@dataclass(slots=True, eq=False)
class Application:
    """What one client process asked for and got. `expiry`: how long its session lives without a link."""

    name: str
    host: ClientHost
    began_at: int
    expiry: int = 0
    interests: dict[int, Interest] = field(default_factory=dict)
    past: list[Interest] = field(default_factory=list)
    """What its session, where that is kept, asked for before: in an earlier run, or until it ended it."""
    is_gone: bool = False
    former: Application | None = None
    """The run before, where this one took its session up."""
    read: int = 0
    outcomes: int = 0
    had: dict[MessageId, set[int]] = field(default_factory=dict)
    """The QoS at which it had each message."""
    last: dict[tuple[int, str], Sent] = field(default_factory=dict)
    """The latest message of each publisher's run and topic."""
    retained: set[MessageId] = field(default_factory=set)
    """What it had as retained messages."""
    broken: dict[str, int] = field(default_factory=dict)
    """When it last lost its link to who served, or had served, each topic."""

    def follow(self, former: Application) -> None:
        """Takes the session of an earlier run up."""
        self.former = former
        self.past = [*former.past, *former.interests.values()]
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
        if interest is not None and self.expiry:
            self.past.append(interest)
        return interest

    def has_had(self, message: MessageId) -> bool:
        """Whether this run, or one before in the same session, had a message."""
        is_former = self.former is not None and self.former.has_had(message)
        return message in self.had or is_former

    def may_lack(self, sent: Sent) -> bool:
        """Whether it need not have a message: because it had it, or a run before may have had parts of it,
        which died with that, or it gave the message up, because the next part was too long in coming."""
        is_cut_short = sent.may_be_in_parts and (sent.at <= self.began_at or self._gave_up(sent))
        return self.has_had(sent.id) or is_cut_short

    def _gave_up(self, sent: Sent) -> bool:
        """§7.5: parts of it were acknowledged, and count for the publisher that comes back with the rest."""
        was_long = sent.acknowledged is not None and sent.acknowledged - sent.at > PART_WAIT
        return was_long and self.host.engine.counters().get("drop.incomplete", 0) > 0
