"""What applications did and got, as the watchers of a run write it down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from .hosts import ClientHost

__all__ = ["Application", "Interest", "MessageId", "Sent"]

MessageId: TypeAlias = tuple[int, int]
"""(publisher's run, sequence number)."""


@dataclass(slots=True)
class Sent:
    """A message, as its publisher published it. `id`: of the publisher's run, and of the message in it."""

    publisher: str
    id: MessageId
    topic: str
    qos: int
    retain: bool
    payload: bytes
    at: int
    acknowledged: int | None = None
    """When its publisher learned that it is distributed."""

    def __str__(self) -> str:
        what = "retained message" if self.retain else "message"
        return f"{self.publisher}'s {what} {self.id[1]} to {self.topic} at QoS {self.qos}"


@dataclass(slots=True)
class Interest:
    """A subscription. `since`: for each topic for which it is whole, from when."""

    filter: str
    qos: int
    topics: tuple[str, ...]
    asked_at: int
    since: dict[str, int] = field(default_factory=dict)
    connected: dict[str, int] = field(default_factory=dict)
    """The same, but for breaks in which no link was lost."""
    is_made: bool = False

    def hold(self, topic: str, now: int) -> None:
        """It is whole for a topic from now on, if it was not before."""
        self.since.setdefault(topic, now)
        self.connected.setdefault(topic, now)


@dataclass(slots=True)
class Application:
    """What one client process asked for and got."""

    name: str
    host: ClientHost
    interests: dict[int, Interest] = field(default_factory=dict)
    read: int = 0
    outcomes: int = 0
    had: dict[MessageId, set[int]] = field(default_factory=dict)
    """The QoS at which it had each message."""
    last: dict[tuple[int, str], Sent] = field(default_factory=dict)
    """The latest message of each publisher's run and topic."""
    retained: set[MessageId] = field(default_factory=set)
    """What it had as retained messages."""
    broken: dict[str, int] = field(default_factory=dict)
    """When it last lost its link to who served, or had served, each topic."""
