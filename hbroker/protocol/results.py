"""The outcomes of the application's requests, which a client's control reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hbroker.protocol.resolution.lookup import Resolution

__all__ = [
    "Published",
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
class Resolved:
    """The outcome of `resolve`: the owner was found."""

    ticket: int
    resolution: Resolution


@dataclass(frozen=True, slots=True)
class ResolveFailed:
    """The outcome of `resolve`: no owner was found, because of `reason`. `answered`: a node gave this reason;
    else no node answered in time. `tried`: the addresses that were asked, as text."""

    ticket: int
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
