"""Which sessions outlive their links (§6.4), and for how long they may be without one.

An owner counts a session's absence from the moment when it noticed that the link is gone. The next owner of
the subtree continues that count. The check is cautious, by as much as clocks may differ: a session counts as
ended a little too early where it must be present, and a little too late where it must be gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from hbroker.protocol import timers
from hbroker.protocol.subscriptions.client.options import Key

from ..invariants import Ownership
from ..world import Address

__all__ = ["Absences"]

DRIFT: Final = 0.07
"""The most by which the rates of two clocks of one network may differ."""
EARLY: Final = timers.SECOND
NOTICED: Final = timers.IDLE_TIMEOUT + timers.KEEP_ALIVE
"""After this time an owner knows that a client is gone."""


@dataclass(slots=True)
class _Session:
    """`expiry`: in microseconds. `ended_at`: when its last run ended. `sought_at`: when a node last opened a
    link to the client after that. `keys`: every subscription it asked for."""

    expiry: int
    ended_at: int | None = None
    sought_at: int = 0
    keys: set[Key] = field(default_factory=set)
    link_lost_at: dict[Address, int] = field(default_factory=dict)
    """The nodes that have lost their link to it, and when."""
    linked_to: set[Address] = field(default_factory=set)
    """The nodes that have a link to it."""
    absent_since: dict[str, int] = field(default_factory=dict)
    """By topic, since when it has had no link at the topic's owner, or former owner."""

    def is_over(self, since: int | None, now: int) -> bool:
        """Whether it may have ended if it has had no link since then; None: it has one."""
        return since is not None and now - since >= self.expiry * (1 - DRIFT) - EARLY


class Absences:
    """All sessions that outlive their links."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._sessions: dict[int, _Session] = {}

    # Change

    def begin(self, session: int, expiry: int) -> None:
        """A run of a client began. `expiry`: for how long its session lives without a link; 0: not at all."""
        if expiry:
            self._sessions.setdefault(session, _Session(expiry)).ended_at = None

    def end(self, session: int, now: int) -> None:
        """A run of a client has ended."""
        if session in self._sessions:
            self._sessions[session].ended_at = now

    def subscribe(self, session: int, key: Key) -> None:
        """A client asked for a subscription."""
        if session in self._sessions:
            self._sessions[session].keys.add(key)

    def lose_link(self, session: int, node: Address, now: int) -> None:
        """A node has lost its link to a session."""
        if record := self._sessions.get(session):
            record.linked_to.discard(node)
            record.link_lost_at.setdefault(node, now)
            for topic, owners in self._ownership.past.items():
                if node in owners:
                    record.absent_since.setdefault(topic, now)

    def lose_node(self, node: Address, now: int) -> None:
        """A node's process ended, and with it its links. Its next run may have the sessions."""
        for session, record in self._sessions.items():
            if node in record.linked_to:
                self.lose_link(session, node, now)

    def gain_link(self, session: int, node: Address, now: int) -> None:
        """A node has a link to a session."""
        record = self._sessions.get(session)
        if record:
            if node not in record.linked_to and record.ended_at is not None:
                record.sought_at = now
            record.linked_to.add(node)
        if record and (record.link_lost_at or record.absent_since):
            record.link_lost_at.pop(node, None)
            for topic, owner in self._ownership.owners.items():
                if owner.address == node:
                    record.absent_since.pop(topic, None)

    # Read

    def ended(self, now: int) -> Iterator[tuple[int, str]]:
        """The sessions that may have ended, each with a topic for which it may.

        Call it often: a new owner of a topic counts from the loss of its own link, if that is earlier.
        """
        for session, record in self._sessions.items():
            for topic, owner in self._ownership.owners.items():
                if (link_lost_at := record.link_lost_at.get(owner.address)) is not None:
                    record.absent_since[topic] = min(
                        link_lost_at, record.absent_since.get(topic, link_lost_at)
                    )
                if self.is_over(session, topic, now):
                    yield session, topic

    def is_over(self, session: int, topic: str, now: int) -> bool:
        """Whether a session may have ended at the owner of a topic."""
        record = self._sessions.get(session)
        return record is not None and record.is_over(record.absent_since.get(topic), now)

    def is_over_at(self, session: int, node: Address, now: int) -> bool:
        """Whether a session may have ended at a node that does not serve any of its topics any more."""
        record = self._sessions.get(session)
        return record is not None and record.is_over(record.link_lost_at.get(node), now)

    def possible_remains(self, now: int) -> Iterator[tuple[int, Key]]:
        """(session, subscription) of what owners may still hold.

        An owner that had no link to the client does not learn of the session's end, and keeps the
        subscription for the session's expiry. If another owner gets the subtree before that link is down, it
        opens one of its own (§5.4), and counts from its end.
        """
        for session, record in self._sessions.items():
            longest = (record.expiry + NOTICED) * (1 + DRIFT)
            if record.ended_at is None or now - max(record.ended_at, record.sought_at) < longest:
                yield from ((session, key) for key in record.keys)
