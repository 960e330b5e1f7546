"""The actions of which a plan consists. Each has a time.

Times are microseconds since the first nodes serve. Hosts are given by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from hbroker._proto import packet_pb2 as pb

from .attacker import Attack

__all__ = [
    "DISTURBANCES",
    "FAILURES",
    "USUAL",
    "Action",
    "ClientAction",
    "Continue",
    "Crash",
    "Depart",
    "DiskAction",
    "Dismiss",
    "Exhaust",
    "FailDisk",
    "FailSync",
    "Falter",
    "FillDisk",
    "FlipBit",
    "Heal",
    "Impersonate",
    "Join",
    "Leave",
    "LosePower",
    "MendDisk",
    "Move",
    "NodeAction",
    "Overflow",
    "Part",
    "PathAction",
    "ProcessAction",
    "Publish",
    "Queue",
    "Replay",
    "Restart",
    "Roam",
    "SetWill",
    "Stop",
    "Subscribe",
    "Succeed",
    "Suspend",
    "Unsubscribe",
    "Wake",
    "describe",
]


class Overflow(IntEnum):
    """What a full queue does, with the values of the protocol."""

    DROP_OLDEST = pb.OVERFLOW_DROP_OLDEST
    DROP_NEWEST = pb.OVERFLOW_DROP_NEWEST
    END_SESSION = pb.OVERFLOW_END_SESSION


@dataclass(frozen=True, slots=True)
class _OfNode:
    at: int
    node: str


@dataclass(frozen=True, slots=True)
class _OfHost:
    at: int
    host: str


@dataclass(frozen=True, slots=True)
class _Room:
    at: int
    node: str
    free_bytes: int


class Join(_OfNode):
    """A node starts."""


class Leave(_OfNode):
    """A node hands its subtree back, and stays away."""


class Dismiss(_OfNode):
    """A node is ordered to leave (`hbroker leave`), and then stays away."""


@dataclass(frozen=True, slots=True)
class Move:
    """The holder of a subtree is ordered to hand it back, and a node to claim it (`hbroker move`)."""

    at: int
    subtree: str
    node: str


@dataclass(frozen=True, slots=True)
class Part:
    """No datagram passes between these hosts and all others, in either direction."""

    at: int
    hosts: frozenset[str]

    def __str__(self) -> str:
        return f"part {' '.join(sorted(self.hosts))} from all others"


@dataclass(frozen=True, slots=True)
class Heal:
    """The partition of these hosts ends."""

    at: int
    hosts: frozenset[str]

    def __str__(self) -> str:
        return f"heal {' '.join(sorted(self.hosts))}"


class Stop(_OfHost):
    """A process stops, as by SIGSTOP."""


class Continue(_OfHost):
    """A stopped process continues, as by SIGCONT."""


class Suspend(_OfHost):
    """A machine is suspended: its process does not run, and its network interface receives nothing."""


class Wake(_OfHost):
    """A suspended machine resumes."""


class Crash(_OfHost):
    """A process ends, as by SIGKILL."""


class LosePower(_OfNode):
    """A node's machine loses power: its process ends, and what was not synced to disk is lost."""


@dataclass(frozen=True, slots=True)
class Falter:
    """A node's process ends and will restart with its files, while nothing else fails.

    So each client that is connected to it must receive what is published in the meantime. `with_machine`: as
    by `LosePower`.
    """

    at: int
    node: str
    with_machine: bool


class FillDisk(_Room):
    """A node's disk has room for only `free_bytes` more bytes."""


class Exhaust(_Room):
    """As `FillDisk`, while nothing else fails until a `Falter` of the node."""


class FailDisk(_OfNode):
    """Every write to a node's disk fails."""


class FailSync(_OfNode):
    """Syncs of a node's store fail: the node ends at the next one."""


class FlipBit(_OfNode):
    """A node's machine loses power, and a bit of its store changes."""


class MendDisk(_OfNode):
    """A node's disk has room again, and no write and no sync fails."""


@dataclass(frozen=True, slots=True)
class Restart:
    """A process that ended starts again.

    `remembers`: a node reads its files of delegations and subscriptions. It reads the file of its claims in
    any case, because otherwise two nodes might claim one subtree. A client resumes its session if that is
    persistent, and makes the same subscriptions; without `remembers` it starts clean. `clock_step_s`: by how
    much its machine's wall clock was set in the meantime.
    """

    at: int
    host: str
    remembers: bool = True
    clock_step_s: int = 0


@dataclass(frozen=True, slots=True)
class Succeed:
    """A node's process ends for good. When its parent has taken its subtrees back, another node is ordered to
    claim them."""

    at: int
    host: str
    heir: str


@dataclass(frozen=True, slots=True)
class Depart:
    """A client closes. A persistent session goes on without it, unless `ends_session`."""

    at: int
    client: str
    ends_session: bool


@dataclass(frozen=True, slots=True)
class SetWill:
    """A client sets its will. `delay`: seconds for which the will waits for the client to come back."""

    at: int
    client: str
    topic: str
    qos: int
    delay: int


@dataclass(frozen=True, slots=True)
class Queue:
    """The bounds of a session's queue at its owners (§7.8), and the policy beyond them. A bound of 0: as many
    as the node allows."""

    messages: int = 0
    bytes: int = 0
    overflow: Overflow = Overflow.DROP_OLDEST

    def __str__(self) -> str:
        bounds = f"{self.messages or 'any number of'} messages, {self.bytes or 'any number of'} bytes"
        return f"({bounds}, {self.overflow.name.lower()})"


USUAL: Final = Queue()
"""The queue of a subscriber that asks for nothing else."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A client subscribes, in a shared group if `group` is set."""

    at: int
    client: str
    filter: str
    qos: int
    group: str = ""
    queue: Queue = USUAL


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A client ends its subscriptions to a filter."""

    at: int
    client: str
    filter: str


@dataclass(frozen=True, slots=True)
class Roam:
    """A client continues under another address."""

    at: int
    client: str


@dataclass(frozen=True, slots=True)
class Publish:
    """A client publishes a message of `size` bytes.

    `retain` with size 0: it clears the topic. `expiry`: seconds; None: the message does not expire.
    """

    at: int
    client: str
    topic: str
    qos: int
    size: int
    retain: bool = False
    expiry: int | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """An attacker on the path replays packets of nodes."""

    at: int
    kind: Attack


@dataclass(frozen=True, slots=True)
class Impersonate:
    """Another process publishes `count` messages under a client's publisher id, in its own session."""

    at: int
    client: str
    topic: str
    qos: int
    count: int
    retain: bool


NodeAction: TypeAlias = Join | Leave | Dismiss | Move
PathAction: TypeAlias = Part | Heal | Replay
DiskAction: TypeAlias = FillDisk | Exhaust | FailDisk | FailSync | FlipBit | MendDisk | LosePower | Falter
ProcessAction: TypeAlias = Stop | Continue | Suspend | Wake | Crash | Restart | Succeed
ClientAction: TypeAlias = Roam | Depart | SetWill | Subscribe | Unsubscribe | Publish | Impersonate
Action: TypeAlias = NodeAction | PathAction | DiskAction | ProcessAction | ClientAction

FAILURES: Final = (Part, Stop, Suspend, Crash, LosePower, FailSync, FlipBit, FillDisk, FailDisk, Roam)
DISTURBANCES: Final = (*FAILURES, Depart)
"""After one of these a subscriber may need longer to come back than an owner waits for it."""


def describe(action: Action) -> str:
    """An action in words."""
    if isinstance(action, Part | Heal):
        return str(action)
    fields = [getattr(action, name) for name in action.__slots__ if name != "at"]
    return " ".join([type(action).__name__.lower(), *map(str, fields)])
