"""What the client's control tells the application: how each of its requests ended."""

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
    """`resolve` found the owner."""

    ticket: int
    resolution: Resolution


@dataclass(frozen=True, slots=True)
class ResolveFailed:
    """`resolve` found no owner, because of `reason`. `answered`: a node said so; else nobody answered in
    time. `tried`: the nodes that were asked, as text."""

    ticket: int
    topic: str
    reason: int
    answered: bool
    tried: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Every owner has the subscription (§6.2). `owners`: their names. `resumed`: every one of them had it
    from before, so that what matched it meanwhile waits there, or came already (§6.4)."""

    subscription: int
    owners: tuple[str, ...]
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class SubscriptionFailed:
    """The subscription was given up; as `ResolveFailed`. `tried`: who did not answer, or refused."""

    subscription: int
    filter: str
    reason: int
    answered: bool
    tried: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """Every owner has dropped the subscription, or is gone."""

    subscription: int


@dataclass(frozen=True, slots=True)
class Published:
    """A message of QoS 1 or 2 was distributed (`reason` says so), or failed."""

    sequence: int
    topic: str
    reason: int


@dataclass(frozen=True, slots=True)
class WillSet:
    """The owner of the will's topic has the will (§6.6)."""

    owner: str


@dataclass(frozen=True, slots=True)
class WillRefused:
    """No owner takes the will; as `ResolveFailed`."""

    topic: str
    reason: int
    answered: bool
    tried: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Another run of the client has its session now (§6.4). This one's core is to be shut down: its links
    would take the session back."""


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
