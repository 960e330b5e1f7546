"""Owners whose leases ended while they lived, and what waits at them for sessions (§5.6).

What an owner acknowledged before its lease ended comes to its sessions once it serves the topic again. Until
then it may be nowhere else; and it is lost where that owner dies, where it is not given the topic again by
the end of a run, or where a session is away from it for longer than it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from .hosts import NodeHost

__all__ = ["EndedLeases"]


class EndedLeases:
    """Of all topics."""

    def __init__(self) -> None:
        self._ends: dict[str, dict[NodeHost, int]] = {}
        """For each topic the owners of before that live, and when their leases ended."""

    # Change

    def begin(self, owner: NodeHost, topic: str, now: int) -> None:
        """The owner of a topic has lost its lease."""
        self._ends.setdefault(topic, {})[owner] = now

    def end(self, owner: NodeHost, topics: Iterable[str]) -> list[str]:
        """A node serves topics. Returns those that it had lost, and has again."""
        return [topic for topic in topics if self._ends.get(topic, {}).pop(owner, None) is not None]

    def lose(self, owner: NodeHost) -> list[tuple[str, int]]:
        """A node died. Returns for which topics something waited there, and until when it may have come."""
        lost = [(topic, ends.pop(owner)) for topic, ends in self._ends.items() if owner in ends]
        return lost

    # Read

    def holders(self, topic: str) -> Iterable[NodeHost]:
        """The nodes at which something of a topic may wait."""
        return self._ends.get(topic, {})

    def may_lack(self, topic: str, at: int) -> bool:
        """Whether what was published at that time may wait at a node that does not serve its topic."""
        return any(at <= end for end in self._ends.get(topic, {}).values())
