"""What may happen to a network: the actions of which a plan is made, each at its time.

Times count from when the first nodes serve, in microseconds. Hosts are named.
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
    "Falter",
    "FillDisk",
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
    """What a full queue does, as on the wire."""

    DROP_OLDEST = pb.OVERFLOW_DROP_OLDEST
    DROP_NEWEST = pb.OVERFLOW_DROP_NEWEST
    END_SESSION = pb.OVERFLOW_END_SESSION


@dataclass(frozen=True, slots=True)
class Join:
    """A node starts."""

    at: int
    node: str


@dataclass(frozen=True, slots=True)
class Leave:
    """A node hands its subtree back, and stays away."""

    at: int
    node: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """A node is ordered to leave (`hbroker leave`), and stays away once it has."""

    at: int
    node: str


@dataclass(frozen=True, slots=True)
class Move:
    """Whoever holds a subtree is ordered to hand it back, and a node to claim it (`hbroker move`)."""

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


@dataclass(frozen=True, slots=True)
class Stop:
    """A process stops, as by SIGSTOP."""

    at: int
    host: str


@dataclass(frozen=True, slots=True)
class Continue:
    """A stopped process goes on."""

    at: int
    host: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """A machine is suspended: its process runs no more, and its network interface receives nothing."""

    at: int
    host: str


@dataclass(frozen=True, slots=True)
class Wake:
    """A suspended machine wakes."""

    at: int
    host: str


@dataclass(frozen=True, slots=True)
class Crash:
    """A process ends as by SIGKILL."""

    at: int
    host: str


@dataclass(frozen=True, slots=True)
class LosePower:
    """A node's machine loses power: its process ends, and what was not synced to its disk is lost."""

    at: int
    node: str


@dataclass(frozen=True, slots=True)
class Falter:
    """A node's process ends and will begin anew with its files, where nothing else goes wrong: so whoever is
    connected to it now is to have what is published meanwhile. `with_machine`: as by `LosePower`."""

    at: int
    node: str
    with_machine: bool


@dataclass(frozen=True, slots=True)
class FillDisk:
    """A node's disk takes only so many bytes more."""

    at: int
    node: str
    room: int


@dataclass(frozen=True, slots=True)
class Exhaust:
    """As `FillDisk`, where nothing else goes wrong until a `Falter` of the node."""

    at: int
    node: str
    room: int


@dataclass(frozen=True, slots=True)
class FailDisk:
    """Every write to a node's disk fails."""

    at: int
    node: str


@dataclass(frozen=True, slots=True)
class MendDisk:
    """There is room again on a node's disk, and nothing fails."""

    at: int
    node: str


@dataclass(frozen=True, slots=True)
class Restart:
    """A process that ended begins anew. `remembers`: a node reads its files of delegations and
    subscriptions. That of its claims it reads in any case: else two nodes might claim one subtree. A client
    takes its session up, where that is kept, and subscribes to the same; or else begins it clean.
    `clock_step_s`: by how much its machine's wall clock was set meanwhile."""

    at: int
    host: str
    remembers: bool = True
    clock_step_s: int = 0


@dataclass(frozen=True, slots=True)
class Succeed:
    """A node's process ends for good, and as soon as its parent has taken back what it held, another node is
    ordered to claim that."""

    at: int
    host: str
    heir: str


@dataclass(frozen=True, slots=True)
class Depart:
    """A client closes. A session that is kept goes on without it, unless it is to end."""

    at: int
    client: str
    ends_session: bool


@dataclass(frozen=True, slots=True)
class SetWill:
    """A client makes its will, which waits so many seconds for it to come back."""

    at: int
    client: str
    topic: str
    qos: int
    delay: int


@dataclass(frozen=True, slots=True)
class Queue:
    """What a subscriber has its owners hold back for its session (§7.8): so many messages and bytes, beyond
    which they do as `overflow` says. 0: as many as the node allows."""

    messages: int = 0
    bytes: int = 0
    overflow: Overflow = Overflow.DROP_OLDEST

    def __str__(self) -> str:
        bounds = f"{self.messages or 'any number of'} messages, {self.bytes or 'any number of'} bytes"
        return f"({bounds}, {self.overflow.name.lower()})"


USUAL: Final = Queue()
"""As nodes have it, where a subscriber asks for nothing else."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A client subscribes, in a shared group where one is named."""

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
    """A client goes on under another address."""

    at: int
    client: str


@dataclass(frozen=True, slots=True)
class Publish:
    """A client publishes a message of so many bytes. `retain` without any bytes: it clears the topic.
    `expiry`: after so many seconds it is worth nothing; None: it keeps its worth."""

    at: int
    client: str
    topic: str
    qos: int
    size: int
    retain: bool = False
    expiry: int | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """Somebody on the path says again what nodes said to each other."""

    at: int
    kind: Attack


@dataclass(frozen=True, slots=True)
class Impersonate:
    """Another process publishes so many messages under a client's publisher id, in a session of its own."""

    at: int
    client: str
    topic: str
    qos: int
    count: int
    retain: bool


NodeAction: TypeAlias = Join | Leave | Dismiss | Move
PathAction: TypeAlias = Part | Heal | Replay
DiskAction: TypeAlias = FillDisk | Exhaust | FailDisk | MendDisk | LosePower | Falter
ProcessAction: TypeAlias = Stop | Continue | Suspend | Wake | Crash | Restart | Succeed
ClientAction: TypeAlias = Roam | Depart | SetWill | Subscribe | Unsubscribe | Publish | Impersonate
Action: TypeAlias = NodeAction | PathAction | DiskAction | ProcessAction | ClientAction

FAILURES: Final = (Part, Stop, Suspend, Crash, LosePower, FillDisk, FailDisk, Roam)
DISTURBANCES: Final = (*FAILURES, Depart)
"""After these a subscriber may need longer to come back than it is waited for."""


def describe(action: Action) -> str:
    """An action in words."""
    if isinstance(action, Part | Heal):
        return str(action)
    fields = [getattr(action, name) for name in action.__slots__ if name != "at"]
    return " ".join([type(action).__name__.lower(), *map(str, fields)])
