"""Which sessions an owner waits for (§7.3), and what becomes of their messages (§7.8), as exact rules.

Both rules are checked against a session's counters after each act of its owner.

- *Keeps*: for a session that counted as connected, and whose client asked for no bounds and no other policy,
  no message is dropped for want of room.
- *Paced*: a session does not count as connected for longer than it may if fewer messages were acknowledged
  than were its oldest, sixteen at most, when they were last counted. (Which messages these were is checked by
  `engine/tests/sessions/stalls.rs` of the core.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hbroker._native import SessionStatus

from ..actions import USUAL, Queue
from ..hosts import NodeHost
from ..invariants import Invariant, Violation

__all__ = ["Paces"]

OLDEST: Final = 16
"""A session must acknowledge this number of its oldest messages within 2.5 s (§9)."""
LONGEST: Final = 3_000_000
"""In microseconds: these 2.5 s, by a clock that may be too slow."""


@dataclass(slots=True)
class _OldestMessages:
    """A session's oldest messages: since when they are the oldest, the count of deliveries when all of them
    are delivered, and the count of those that were dropped or expired."""

    since: int
    due: int
    discarded: int


class Paces:
    """The sessions at all nodes."""

    def __init__(self) -> None:
        self._queues: dict[int, set[Queue]] = {}
        self._drops: dict[tuple[int, int], tuple[int, bool]] = {}
        """By run of a node and session: the messages dropped for want of room, and whether the session
        counted as connected then."""
        self._oldest: dict[tuple[int, int], _OldestMessages] = {}
        self._slow: set[int] = set()

    def subscribe(self, session: int, queue: Queue) -> None:
        """A client subscribed."""
        self._queues.setdefault(session, set()).add(queue)

    def mark_slow(self, session: int) -> None:
        """Its client reads slowly, and no path fails."""
        self._slow.add(session)

    def check(self, node: NodeHost, status: SessionStatus, now: int) -> Iterator[Violation]:
        """Checks the status of a session after an act of its node."""
        key = node.incarnation, status.session
        is_ready = status.connected and not status.stalled
        dropped = status.dropped.get("queue_full", 0)
        before, was_ready = self._drops.get(key, (dropped, False))
        self._drops[key] = dropped, is_ready
        if dropped > before and was_ready and self._queues.get(status.session) == {USUAL}:
            text = f"{node.settings.name} drops {dropped - before} messages of a session that goes on"
            yield Violation(now, Invariant.KEEPS, text)
        if is_ready and status.queued and status.session in self._slow:
            yield from self._check_oldest(node, status, now)
        else:
            self._oldest.pop(key, None)

    def _check_oldest(self, node: NodeHost, status: SessionStatus, now: int) -> Iterator[Violation]:
        key = node.incarnation, status.session
        discarded = status.expired + sum(status.dropped.values())
        oldest = self._oldest.get(key)
        if oldest is not None and oldest.due - status.delivered > OLDEST:
            oldest = None  # The session ended at this node, and begins anew.
        if oldest is None or status.delivered >= oldest.due or discarded != oldest.discarded:
            self._oldest[key] = _OldestMessages(now, status.delivered + min(OLDEST, status.queued), discarded)
        elif now - oldest.since > LONGEST:
            waits = f"{node.settings.name} waits for a session of which {status.queued} messages wait"
            text = f"{waits}, {oldest.due - status.delivered} of its oldest for {now - oldest.since} us"
            yield Violation(now, Invariant.PACED, text)
