"""One look-up (§5.2): its states.

A look-up asks in recursive mode first. Two tries without an answer mean more often that the owner's direct
answer cannot reach this client (NAT, a stateful firewall) than that datagrams were lost. Then the look-up
goes on by referral, where each node answers from the address that was asked. Each referral must lead to a
deeper subtree than the last, so the look-up ends.

If a node stays silent, the look-up begins again. If a node asks the client to come back later, it begins
again after a pause. It then asks by referral, because a node that cannot forward a request may still name the
next node. It begins at the root and at the node that was named last in turn, because either may be down. So a
client finds a serving owner while the root is down, if any node has named that owner before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from hbroker.protocol.packets import Address
from hbroker.protocol.resolution.requests import Request
from hbroker.protocol.results import Hop
from hbroker.protocol.state_machine import Machine
from hbroker.protocol.timers import NEGATIVE_TTL

__all__ = ["TRANSITIONS", "Event", "Lookup", "State"]


class State(Enum):
    """What a look-up waits for."""

    QUEUED = auto()
    """For its turn at its starting node."""
    EXPECT_OWNER = auto()
    """For the owner's answer, from any address."""
    EXPECT_HOP = auto()
    """For the answer of the node that was asked: PUBACCEPT or REFERRAL."""
    BACKING_OFF = auto()
    """For the end of a pause, to begin again."""
    RESOLVED = auto()
    FAILED = auto()


class Event(Enum):
    """What happens to a look-up."""

    ASK = auto()
    """Its turn has come, in recursive mode."""
    ASK_BY_REFERRAL = auto()
    """Its turn has come, by referral."""
    COVER = auto()
    """A zone that another topic, or another client, has brought covers the topic."""
    REPEAT = auto()
    """A try had no answer, and there is another."""
    FALL_BACK = auto()
    """The tries in recursive mode had no answer."""
    REFER = auto()
    """A node named the next node."""
    DEFER = auto()
    """A node is silent, or asks the client to come back later."""
    ACCEPT = auto()
    """The owner answered."""
    REFUSE = auto()
    """A node refused for good."""
    EXPIRE = auto()
    """The time for the look-up is over."""


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


@dataclass(slots=True, eq=False)
class Lookup:
    """One topic that is being resolved.

    - `ticket`: the application's; None: messages in the core wait for the topic.
    - `subtree`: what the node that was asked last was said to hold; None: the look-up has just begun.
    - `has_silent_owner`: a node has named an owner that has not answered. Its lease may have to end first.
    - `is_extended`: the deadline was extended because of that.
    - `below`: the node above the owner that the core knew; None: it knew none.
    - `guide`: the node that was named last as the holder of what is around the topic; None: none was.
    - `hops`: the nodes that were asked since the look-up last began.
    - `requests`: the requests whose answers still count, the present one last.
    - `turn`: the starting node whose turn this look-up has.
    - `fell_back`: no answer arrived in recursive mode.
    - `reason`, `negative_ttl` (microseconds): those of the last refusal.
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
        """Begins again: at the root, or, if it began there, at the node that was named last. A trace always
        begins at the root, because it shows the way down from there."""
        begins_there = self.start == root and not self.by_referral
        self.start = self.guide if begins_there and self.guide is not None else root
        self.subtree = None
