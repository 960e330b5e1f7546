"""What a node tells those who run it: facts for the log and the launcher, and counts of what it dropped."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from hbroker.protocol.packets import Address

__all__ = [
    "ChildAway",
    "ChildJoined",
    "ChildLeft",
    "Diagnostics",
    "Joined",
    "LeaseLost",
    "Left",
    "NameTaken",
    "NodeEvent",
    "Ordered",
    "PolicyLowered",
    "Refused",
    "TookBack",
    "Unproved",
]

MOST_EVENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Joined:
    """This node serves a subtree."""

    subtree: str
    parent: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A parent refused a JOIN. `reason` is a `Reason`; `holder` who has the subtree, where that is why."""

    subtree: str
    reason: int
    holder: str
    final: bool
    """This node will not try again."""


@dataclass(frozen=True, slots=True)
class Unproved:
    """An answer to a JOIN proves no join key, or another (§5.5): the key of this node or of the one that was
    asked is missing or wrong, or somebody else has answered. This node asks again."""

    subtree: str


@dataclass(frozen=True, slots=True)
class NameTaken:
    """Another node, at this address, has this node's name: this one claims nothing until that one has left,
    or its lease is over (§5.1)."""

    subtree: str
    name: str
    address: Address


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """This node stopped serving a subtree: its lease ran out, a higher epoch fenced it, or it leaves and its
    parent is silent."""

    subtree: str


@dataclass(frozen=True, slots=True)
class Ordered:
    """Those who operate the network ordered this node to do something (§5.7)."""

    order: str
    subtree: str


@dataclass(frozen=True, slots=True)
class PolicyLowered:
    """This node was to go on when its lease ends (`serve`). Its parent would not: so it stops (`fence`)."""

    subtree: str
    parent: str


@dataclass(frozen=True, slots=True)
class Left:
    """This node gave a subtree back."""

    subtree: str


@dataclass(frozen=True, slots=True)
class ChildJoined:
    """A child holds a subtree by this node's grant."""

    subtree: str
    node: str
    address: Address
    epoch: int


@dataclass(frozen=True, slots=True)
class ChildAway:
    """The link to a child is down; its lease goes on."""

    subtree: str
    node: str


@dataclass(frozen=True, slots=True)
class ChildLeft:
    """A child handed a subtree back."""

    subtree: str
    node: str


@dataclass(frozen=True, slots=True)
class TookBack:
    """A child's lease ran out and this node serves the subtree again."""

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
    | Left
    | ChildJoined
    | ChildAway
    | ChildLeft
    | TookBack
)


class Diagnostics:
    """Counters by name, and the notices that nobody has read yet (the oldest give way)."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._events: deque[NodeEvent] = deque(maxlen=MOST_EVENTS)

    def count(self, name: str, times: int = 1) -> None:
        self.counters[name] += times

    def drop(self, reason: str, times: int = 1) -> None:
        """Bad network input is dropped and counted, never raised."""
        self.count(f"drop.{reason}", times)

    def note(self, node_event: NodeEvent) -> None:
        self._events.append(node_event)

    def poll(self) -> NodeEvent | None:
        return self._events.popleft() if self._events else None
