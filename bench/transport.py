"""What the load loops ask of a transport, and what all transports send.

One publishing process and one subscribing process. A *pair* is a topic of its own with one publisher and one
subscriber, or many; each has a connection of its own. The subscribers' connections are counted through, pair
by pair. Topic and payload have the same length everywhere.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias

from bench.sequences import Stream
from hbroker.bench.launching import NoAnswer

__all__ = ["FILLER", "PAYLOAD_BYTES", "Address", "NoAnswer", "Publisher", "Subscriber", "topic_of"]

Address: TypeAlias = tuple[str, int]

PAYLOAD_BYTES: Final = 64
FILLER: Final = bytes(range(PAYLOAD_BYTES))


def topic_of(pair: int) -> str:
    """The topic of one pair."""
    return f"bench/pair-{pair:02}/load"


class Publisher(Protocol):
    """The publishing side of all pairs."""

    def publish(self, count: int) -> int:
        """Up to `count` messages of the next pair; returns how many were taken."""

    def publish_one(self, payload: bytes) -> None:
        """One message of the next pair."""

    def turn(self) -> None:
        """Takes in what the broker answered."""

    @property
    def acknowledged(self) -> int:
        """Messages that the broker acknowledged (QoS 1)."""

    def datagrams(self) -> int:
        """Datagrams sent so far; 0 over a stream."""

    def drain(self, timeout_s: float) -> None:
        """Sees to it that all has left."""

    def close(self) -> None:
        """Ends the connections."""


class Subscriber(Protocol):
    """The receiving side of all pairs."""

    streams: list[Stream]
    """Of each connection, what came."""
    corrupted: int
    """Messages that are not what was published."""

    def filenos(self) -> list[int]:
        """Of each connection, a descriptor that is readable while there is something to take."""

    def take(self, index: int) -> int:
        """Takes a batch of one connection's messages, and checks them; how many are new."""

    def take_payloads(self, index: int) -> list[bytes]:
        """As `take`, for messages of `publish_one`; returns their payloads."""

    def datagrams(self) -> int:
        """Datagrams received so far; 0 over a stream."""

    def close(self) -> None:
        """Ends the connections."""
