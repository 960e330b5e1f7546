"""What a node reports to its process: events for the log and the launcher, and counters."""

from __future__ import annotations

import re
from collections import Counter, deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from hbroker.protocol.packets import Address
from hbroker.protocol.timers import SECOND

__all__ = [
    "ChildAway",
    "ChildJoined",
    "ChildLeft",
    "Diagnostics",
    "JoinDenied",
    "Joined",
    "LeaseLost",
    "Left",
    "LogLevelOrdered",
    "NameTaken",
    "NodeEvent",
    "OrderRefused",
    "Ordered",
    "PolicyLowered",
    "Refused",
    "RevocationsRefused",
    "Suppression",
    "TokenRefused",
    "TookBack",
    "Unproved",
    "event_name",
]

MOST_EVENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Joined:
    """This node serves a subtree. `parent`: the parent's name."""

    subtree: str
    parent: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A parent refused a JOIN (§5.1). `reason`: a `Reason`. `holder`: the node that holds the subtree; empty:
    none was named."""

    subtree: str
    reason: int
    holder: str
    final: bool
    """This node does not try again."""


@dataclass(frozen=True, slots=True)
class Unproved:
    """The answer to a JOIN does not prove the join key (§5.5). The key of this node or of the other one is
    missing or wrong, or a third party has answered. This node asks again."""

    subtree: str


@dataclass(frozen=True, slots=True)
class NameTaken:
    """Another node, at `address`, has this node's name. This node claims nothing until the other one has left
    or its lease has ended (§5.1)."""

    subtree: str
    name: str
    address: Address


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """This node stopped serving a subtree: its lease ended, a higher epoch fenced it, or it leaves and its
    parent is silent."""

    subtree: str


@dataclass(frozen=True, slots=True)
class Ordered:
    """An operator, at `address`, has ordered this node to do something (§5.7). `client`: the client id that
    the operator's token names; empty: none."""

    order: str
    subtree: str
    address: Address
    client: str


@dataclass(frozen=True, slots=True)
class LogLevelOrdered:
    """From now on events that are at least so severe are logged: `debug`, `info`, `warning` or `error`."""

    level: str


@dataclass(frozen=True, slots=True)
class OrderRefused:
    """An order was refused: it did not prove the join key, the token does not allow it, or this node cannot
    carry it out (§5.7). `client`: as in `Ordered`. At most one in a second is reported. `suppressed`: how
    many were not since the last one."""

    order: str
    subtree: str
    address: Address
    client: str
    why: str
    suppressed: int = 0


@dataclass(frozen=True, slots=True)
class PolicyLowered:
    """This node asked for the policy `serve`, and its parent granted `fence` (§5.6)."""

    subtree: str
    parent: str


@dataclass(frozen=True, slots=True)
class Left:
    """This node handed a subtree back."""

    subtree: str


@dataclass(frozen=True, slots=True)
class ChildJoined:
    """A child holds a subtree that this node granted."""

    subtree: str
    node: str
    address: Address
    epoch: int


@dataclass(frozen=True, slots=True)
class JoinDenied:
    """Somebody tried to join under a name, and did not prove that it may. `why`: the counter of such JOINs,
    `unauthenticated`, `uncertified` or `outside_certificate` (§5.5). At most one in a second is reported.
    `suppressed`: how many were not since the last one."""

    subtree: str
    node: str
    address: Address
    why: str
    suppressed: int = 0


@dataclass(frozen=True, slots=True)
class TokenRefused:
    """A client has shown no valid token (§4.6). At most one in a second is reported. `suppressed`: how many
    were not since the last one."""

    address: Address
    why: str
    suppressed: int = 0


@dataclass(frozen=True, slots=True)
class RevocationsRefused:
    """The authority's list of revoked tokens on this host is not usable, or not as a whole (§5.11). What this
    node knows stays in force."""

    why: str


@dataclass(frozen=True, slots=True)
class ChildAway:
    """The link to a child is down. Its lease goes on."""

    subtree: str
    node: str


@dataclass(frozen=True, slots=True)
class ChildLeft:
    """A child handed a subtree back."""

    subtree: str
    node: str


@dataclass(frozen=True, slots=True)
class TookBack:
    """A child's lease ended, and this node serves the subtree again (§5.6)."""

    subtree: str
    node: str


NodeEvent: TypeAlias = (
    Joined
    | Refused
    | Unproved
    | NameTaken
    | LeaseLost
    | PolicyLowered
    | Ordered
    | LogLevelOrdered
    | OrderRefused
    | Left
    | ChildJoined
    | JoinDenied
    | TokenRefused
    | RevocationsRefused
    | ChildAway
    | ChildLeft
    | TookBack
)


def event_name(kind: type[NodeEvent]) -> str:
    """The name of an event in the log and in the audit: `lease_lost` of `LeaseLost`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


class Suppression:
    """Lets one report a second through, and counts the others."""

    def __init__(self) -> None:
        self._next = 0
        self._suppressed = 0

    def suppressed_before(self, now: int) -> int | None:
        """How many reports were suppressed since the last one; None: this one is suppressed, too."""
        if now < self._next:
            self._suppressed += 1
            return None
        self._next = now + SECOND
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed


class Diagnostics:
    """Counters by name, and the events that were not read yet. If there are too many, the oldest are
    discarded."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._events: deque[NodeEvent] = deque(maxlen=MOST_EVENTS)

    def count(self, name: str, times: int = 1) -> None:
        """Raises a counter."""
        self.counters[name] += times

    def drop(self, reason: str, times: int = 1) -> None:
        """Counts bad input from the network, which is discarded and never raised."""
        self.count(f"drop.{reason}", times)

    def add_event(self, node_event: NodeEvent) -> None:
        """Adds an event."""
        self._events.append(node_event)

    def poll(self) -> NodeEvent | None:
        """The next event; None: there is none now."""
        return self._events.popleft() if self._events else None
