"""The outcomes of the application's requests, which a client's control reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TypeAlias

from hbroker.addresses import format_address
from hbroker.protocol.packets import Address

__all__ = [
    "Hop",
    "Published",
    "Resolution",
    "ResolveFailed",
    "Resolved",
    "Result",
    "Subscribed",
    "SubscriptionFailed",
    "TakenOver",
    "Unsubscribed",
    "WillRefused",
    "WillSet",
]


@dataclass(frozen=True, slots=True)
class Hop:
    """One answer of a look-up. `time_ms`: milliseconds since the request was last sent. `cache`: what the
    client knew before it asked ("hit": the owner; "cut": a node above the owner; "miss": nothing)."""

    node: str
    address: Address
    packet: str
    subtree: str
    epoch: int
    ttl_s: int
    time_ms: float
    cache: str

    def to_json(self) -> dict[str, object]:
        """The object as `hbroker resolve --trace --json` prints it."""
        return asdict(self) | {"address": format_address(self.address)}


@dataclass(frozen=True, slots=True)
class Resolution:
    """The owner of a topic. `scope`: the subtree for which the answer holds, less the cuts in it (§5.3).
    `subscriptions`: how many match the topic. `trace`: the answers of the look-up, in order."""

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
        """The object as `hbroker resolve --json` prints it."""
        trace = [hop.to_json() for hop in self.trace]
        return asdict(self) | {"address": format_address(self.address), "trace": trace}


@dataclass(frozen=True, slots=True)
class Resolved:
    """The outcome of `resolve`: the owner was found."""

    lookup_id: int
    resolution: Resolution


@dataclass(frozen=True, slots=True)
class ResolveFailed:
    """The outcome of `resolve`: no owner was found, because of `reason`. `answered`: a node gave this reason;
    else no node answered in time. `tried`: the addresses that were asked, as text."""

    lookup_id: int
    topic: str
    reason: int
    answered: bool
    tried: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Every owner has the subscription (§6.2). `owners`: their names. `resumed`: every owner had it before,
    so the messages that it matched meanwhile are queued there, or arrived already (§6.4)."""

    subscription: int
    owners: tuple[str, ...]
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class SubscriptionFailed:
    """The subscription failed; the fields are as in `ResolveFailed`. `tried`: the nodes that refused, or did
    not answer."""

    subscription: int
    filter: str
    reason: int
    answered: bool
    tried: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """Every owner has ended the subscription, or is gone."""

    subscription: int


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome of a message of QoS 1 or 2. `reason`: whether it was distributed, or why not (§7.3)."""

    sequence: int
    topic: str
    reason: int


@dataclass(frozen=True, slots=True)
class WillSet:
    """The owner of the will's topic has accepted the will (§6.6)."""

    owner: str


@dataclass(frozen=True, slots=True)
class WillRefused:
    """No owner accepts the will; the fields are as in `ResolveFailed`."""

    topic: str
    reason: int
    answered: bool
    tried: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Another run of the client has its session now (§6.4). The core of this run must be shut down, because
    its links would take the session back."""


Result: TypeAlias = (
    Resolved
    | ResolveFailed
    | Subscribed
    | SubscriptionFailed
    | Unsubscribed
    | Published
    | WillSet
    | WillRefused
    | TakenOver
)
