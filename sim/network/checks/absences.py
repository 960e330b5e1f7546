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
    """`expiry`: in microseconds. `gone_at`: when its last run ended. `keys`: every subscription it asked
    for."""

    expiry: int
    gone_at: int | None = None
    keys: set[Key] = field(default_factory=set)
    down: dict[Address, int] = field(default_factory=dict)
    """The nodes that have lost their link to it, and when."""
    since: dict[str, int] = field(default_factory=dict)
    """By topic, since when it has had no link at the topic's owner, or former owner."""


class Absences:
    """All sessions that outlive their links."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._sessions: dict[int, _Session] = {}

    # Change

    def begin(self, session: int, expiry: int) -> None:
        """A run of a client began. `expiry`: for how long its session lives without a link; 0: not at all."""
        if expiry:
            self._sessions.setdefault(session, _Session(expiry)).gone_at = None

    def end(self, session: int, now: int) -> None:
        """A run of a client has ended."""
        if session in self._sessions:
            self._sessions[session].gone_at = now

    def ask(self, session: int, key: Key) -> None:
        """A client asked for a subscription."""
        if session in self._sessions:
            self._sessions[session].keys.add(key)

    def lose_link(self, session: int, node: Address, now: int) -> None:
        """A node has lost its link to a session."""
        if known := self._sessions.get(session):
            known.down.setdefault(node, now)
            for topic, owners in self._ownership.past.items():
                if node in owners:
                    known.since.setdefault(topic, now)

    def gain_link(self, session: int, node: Address) -> None:
        """A node has a link to a session."""
        known = self._sessions.get(session)
        if known and (known.down or known.since):
            known.down.pop(node, None)
            for topic, owner in self._ownership.owners.items():
                if owner.address == node:
                    known.since.pop(topic, None)

    # Read

    def over(self, now: int) -> Iterator[tuple[int, str]]:
        """The sessions that may have ended, each with a topic for which it may.

        Call it often: a new owner of a topic counts from the loss of its own link, if that is earlier.
        """
        for session, known in self._sessions.items():
            for topic, owner in self._ownership.owners.items():
                if (down := known.down.get(owner.address)) is not None:
                    known.since[topic] = min(down, known.since.get(topic, down))
                if self.is_over(session, topic, now):
                    yield session, topic

    def is_over(self, session: int, topic: str, now: int) -> bool:
        """Whether a session may have ended at the owner of a topic."""
        known = self._sessions.get(session)
        since = None if known is None else known.since.get(topic)
        return known is not None and since is not None and now - since >= known.expiry * (1 - DRIFT) - EARLY

    def is_over_at(self, session: int, node: Address, now: int) -> bool:
        """Whether a session may have ended at a node that does not serve any of its topics any more."""
        known = self._sessions.get(session)
        down = None if known is None else known.down.get(node)
        return known is not None and down is not None and now - down >= known.expiry * (1 - DRIFT) - EARLY

    def remains(self, now: int) -> Iterator[tuple[int, Key]]:
        """(session, subscription) of what owners may still hold.

        An owner that had no link to the client does not learn of the session's end, and keeps the
        subscription for the session's expiry.
        """
        for session, known in self._sessions.items():
            longest = (known.expiry + NOTICED) * (1 + DRIFT)
            if known.gone_at is None or now - known.gone_at < longest:
                yield from ((session, key) for key in known.keys)
