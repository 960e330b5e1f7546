"""One topic on its way to its owner (§5.2): the states of a lookup, and what comes out of it.

A lookup asks in recursive mode first. Two tries without an answer mean, more often than loss, that the
owner's direct answer cannot reach this client (NAT, a stateful firewall); then it goes on by referral,
where every node answers from the address that was asked. Each referral must lead to a subtree deeper than
the last, so the walk ends by itself.

A node on it that stays silent sends the lookup back, and so does one that asks to come back later, after a
pause; by referral from now on, since a node that cannot pass a question down may yet name who could answer
it. By turns the lookup begins at the root and at the node that was named last, for either may be away: an
owner that serves is found while the root is dead, if anybody has named it before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from hbroker.config import format_address
from hbroker.protocol.packets import Address
from hbroker.protocol.resolution.requests import Request
from hbroker.protocol.state_machine import Machine
from hbroker.protocol.timers import NEGATIVE_TTL

__all__ = ["TRANSITIONS", "Event", "Hop", "Lookup", "Resolution", "State"]


class State(Enum):
    """What a lookup waits for."""

    QUEUED = auto()
    """Its turn."""
    EXPECT_OWNER = auto()
    """The owner's answer, from wherever it is."""
    EXPECT_HOP = auto()
    """The answer of the node that was asked: its own, or a referral."""
    BACKING_OFF = auto()
    """The end of a pause, to begin again."""
    RESOLVED = auto()
    FAILED = auto()


class Event(Enum):
    """What happens to a lookup."""

    ASK = auto()
    """Its turn has come: in recursive mode."""
    ASK_BY_REFERRAL = auto()
    """Its turn has come: by referral."""
    COVER = auto()
    """A zone that came for another topic, or to another client, covers this one."""
    REPEAT = auto()
    """A try went unanswered, and another is worth it."""
    FALL_BACK = auto()
    """The tries in recursive mode went unanswered."""
    REFER = auto()
    """A node named the next one."""
    DEFER = auto()
    """A node is silent, or asks to come back later."""
    ACCEPT = auto()
    """The owner answered."""
    REFUSE = auto()
    """The answer is no, and stays no."""
    EXPIRE = auto()
    """The time for the lookup is over."""


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.QUEUED, Event.ASK): State.EXPECT_OWNER,
    (State.QUEUED, Event.ASK_BY_REFERRAL): State.EXPECT_HOP,
    (State.QUEUED, Event.COVER): State.RESOLVED,
    (State.QUEUED, Event.EXPIRE): State.FAILED,
    (State.EXPECT_OWNER, Event.REPEAT): State.EXPECT_OWNER,
    (State.EXPECT_OWNER, Event.FALL_BACK): State.EXPECT_HOP,
    (State.EXPECT_OWNER, Event.REFER): State.EXPECT_HOP,
    (State.EXPECT_OWNER, Event.DEFER): State.BACKING_OFF,
    (State.EXPECT_OWNER, Event.COVER): State.RESOLVED,
    (State.EXPECT_OWNER, Event.ACCEPT): State.RESOLVED,
    (State.EXPECT_OWNER, Event.REFUSE): State.FAILED,
    (State.EXPECT_OWNER, Event.EXPIRE): State.FAILED,
    (State.EXPECT_HOP, Event.REPEAT): State.EXPECT_HOP,
    (State.EXPECT_HOP, Event.REFER): State.EXPECT_HOP,
    (State.EXPECT_HOP, Event.DEFER): State.BACKING_OFF,
    (State.EXPECT_HOP, Event.COVER): State.RESOLVED,
    (State.EXPECT_HOP, Event.ACCEPT): State.RESOLVED,
    (State.EXPECT_HOP, Event.REFUSE): State.FAILED,
    (State.EXPECT_HOP, Event.EXPIRE): State.FAILED,
    (State.BACKING_OFF, Event.ASK): State.EXPECT_OWNER,
    (State.BACKING_OFF, Event.ASK_BY_REFERRAL): State.EXPECT_HOP,
    (State.BACKING_OFF, Event.REFER): State.EXPECT_HOP,
    (State.BACKING_OFF, Event.COVER): State.RESOLVED,
    (State.BACKING_OFF, Event.ACCEPT): State.RESOLVED,
    (State.BACKING_OFF, Event.EXPIRE): State.FAILED,
}


@dataclass(frozen=True, slots=True)
class Hop:
    """One answer on the way. `time_ms`: from the last time the question was sent. `cache`: what the client
    knew of the topic before it asked ("hit": its owner, "cut": a node above the owner, "miss": nothing)."""

    node: str
    address: Address
    packet: str
    subtree: str
    epoch: int
    ttl_s: int
    time_ms: float
    cache: str

    def to_json(self) -> dict[str, object]:
        """As `hbroker resolve --trace --json` prints it."""
        return {
            "node": self.node,
            "address": format_address(self.address),
            "packet": self.packet,
            "subtree": self.subtree,
            "epoch": self.epoch,
            "ttl_s": self.ttl_s,
            "time_ms": self.time_ms,
            "cache": self.cache,
        }


@dataclass(frozen=True, slots=True)
class Resolution:
    """Who owns a topic. `scope`: what this answer holds for (§5.3), but for the cuts below it.
    `subscriptions`: how many match the topic. `trace`: the answers on the way, the first first."""

    topic: str
    owner: str
    address: Address
    epoch: int
    ttl_s: int
    subtree: str
    scope: str
    subscriptions: int
    trace: tuple[Hop, ...]

    def to_json(self) -> dict[str, object]:
        """As `hbroker resolve --json` prints it."""
        return {
            "topic": self.topic,
            "owner": self.owner,
            "address": format_address(self.address),
            "epoch": self.epoch,
            "ttl_s": self.ttl_s,
            "subtree": self.subtree,
            "scope": self.scope,
            "subscriptions": self.subscriptions,
            "trace": [hop.to_json() for hop in self.trace],
        }


@dataclass(slots=True, eq=False)
class Lookup:
    """One topic that is being resolved.

    `ticket`: the application's, None for the messages that wait in the core. `subtree`: what the node that
    was asked last was said to hold, None at the start. `has_silent_owner`: a node has named an owner, who
    does not answer so far: its lease may have to end first. `is_extended`: the deadline was put off for that.
    `below`: the node above the owner that the core knew of, None: none. `guide`: who was named last as the
    holder of what is around the topic, None: nobody. `hops`: how many were asked since the start. `requests`:
    those to which an answer still counts, the present one last. `turn`: the starting node whose turn this
    lookup has. `fell_back`: nobody answered in recursive mode. `reason`, `negative_ttl` (microseconds): of
    the last refusal.
    """

    topic: str
    start: Address
    deadline: int
    ticket: int | None = None
    by_referral: bool = False
    cache: str = "miss"
    machine: Machine[State, Event] = field(default_factory=lambda: Machine(TRANSITIONS, State.QUEUED))
    requests: list[Request[Lookup]] = field(default_factory=list)
    subtree: str | None = None
    has_silent_owner: bool = False
    is_extended: bool = False
    below: Address | None = None
    guide: Address | None = None
    hops: int = 0
    turn: Address | None = None
    fell_back: bool = False
    restarts: int = 0
    reason: int = 0
    negative_ttl: int = NEGATIVE_TTL
    trace: list[Hop] = field(default_factory=list)
    tried: dict[Address, None] = field(default_factory=dict)

    def turn_back(self, root: Address) -> None:
        """Begins again: at the root, or, where it began there, at whoever was named last. A trace, which
        shows the way down from the root, always begins there."""
        begins_there = self.start == root and not self.by_referral
        self.start = self.guide if begins_there and self.guide is not None else root
        self.subtree = None
