"""Owners whose leases ended while they lived, and what waits there for sessions (§5.6).

Messages that an owner acknowledged before its lease ended reach their sessions when it serves the topic
again. Until then they may be nowhere else. They are lost if that owner dies, if it does not get the topic
again by the end of a run, or if a session has no link to it for longer than the session's expiry.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..hosts import NodeHost

__all__ = ["EndedLeases"]


class EndedLeases:
    """The ended leases of all topics."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[NodeHost, int]] = {}
        """By topic, the former owners that live, and when their leases ended."""
        self._latest: dict[str, int] = {}
        """By topic, when a lease ended last."""

    # Change

    def begin(self, owner: NodeHost, topic: str, now: int) -> None:
        """The owner of a topic has lost its lease."""
        self._ends.setdefault(topic, {})[owner] = now
        self._latest[topic] = now

    def end(self, owner: NodeHost, topics: Iterable[str]) -> list[str]:
        """A node serves topics. Returns those that it had lost and has again."""
        return [topic for topic in topics if self._ends.get(topic, {}).pop(owner, None) is not None]

    def lose(self, owner: NodeHost) -> list[tuple[str, int]]:
        """A node died. Returns the topics for which messages waited there, and until when these may have
        come."""
        return [(topic, ends.pop(owner)) for topic, ends in self._ends.items() if owner in ends]

    # Read

    def holders(self, topic: str) -> Iterable[NodeHost]:
        """The nodes at which messages of a topic may wait."""
        return self._ends.get(topic, {})

    def may_come_late(self, topic: str, at: int) -> bool:
        """Whether a message published at this time may have waited at a node that lost its lease, while
        another one served its topic."""
        return at <= self._latest.get(topic, -1)

    def may_lack(self, topic: str, at: int) -> bool:
        """Whether a message published at this time may wait at a node that does not serve its topic."""
        return any(at <= end for end in self._ends.get(topic, {}).values())
