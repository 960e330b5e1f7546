"""What the launcher tells while a network runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from hbroker.topology import Topology

__all__ = [
    "Ended",
    "LauncherEvent",
    "Left",
    "Ready",
    "Recovered",
    "Starting",
    "Stopped",
    "StorageFailed",
    "StorageRecovered",
    "Waiting",
]


@dataclass(frozen=True, slots=True)
class Starting:
    """One more process serves, and others do not serve yet. `serving`: how many do."""

    serving: int


@dataclass(frozen=True, slots=True)
class Ready:
    """Every node serves, every gateway accepts clients, and the network has the subscriptions of every
    bridge, for the first time. `seconds`: since the launcher started. `listeners`: the URLs of each gateway,
    by its name. `admin`: the URL of the HTTP API, which may still be loading: it answers then; None: there is
    none."""

    topology: Topology
    seconds: float
    listeners: Mapping[str, tuple[str, ...]]
    admin: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """These processes do not serve yet. `seconds`: since the launcher started. The HTTP API is never among
    them."""

    names: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A process ended by itself, and is started again. `how`: its exit code or signal, in words.
    `restart_in`: seconds."""

    name: str
    how: str
    last_line: str
    restart_in: float


@dataclass(frozen=True, slots=True)
class Recovered:
    """A process that had ended serves again. `seconds`: for how long it did not."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Left:
    """A node left because of an order, and is not started again."""

    name: str


@dataclass(frozen=True, slots=True)
class StorageFailed:
    """A process cannot write to its disk. It goes on, and tries again. `name`: the launcher has its network's
    name."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class StorageRecovered:
    """The process can write to its disk again."""

    name: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """All processes have ended. `seconds`: since the network was told to stop."""

    seconds: float


LauncherEvent: TypeAlias = (
    Starting | Ready | Waiting | Ended | Recovered | Left | StorageFailed | StorageRecovered | Stopped
)
