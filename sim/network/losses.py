"""What owners may drop of what waits for a session (§7.8), made exact.

An owner counts for each session what its queue had no room for, and what expired there. Both are read after
each of its acts, so every loss has a time.

- *Bounded*: what waits for a session that is away is no more than its client asked for; but not where its
  owner was restarted, and has not heard from its client since (docs/guarantees.md).
- *As asked*: a session ends by its queue only if a subscription of it asked for that, and has no gaps if all
  of them did: what is counted for it then is of QoS 0, which does not wait in its queue but goes onto the
  link or is dropped.
- *Accounted for*: a client that lacks what was acknowledged lacks no more than was dropped for its session
  since that was published: of what does not expire no more than its queue had no room for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hbroker._native import SessionStatus

from .actions import Overflow, Queue
from .applications import Sent
from .hosts import NodeHost
from .invariants import Invariant, Violation

__all__ = ["Losses"]


@dataclass(frozen=True, slots=True)
class _Loss:
    """How many messages a session lost at a time: to its queue's bounds, and to their expiry."""

    at: int
    overflowed: int
    expired: int


class Losses:
    """Of all sessions."""

    def __init__(self) -> None:
        self._queues: dict[int, Queue] = {}
        self._policies: dict[int, set[Overflow]] = {}
        self._counted: dict[tuple[int, int], tuple[int, int]] = {}
        """What each run of a node told last of each session."""
        self._losses: dict[int, list[_Loss]] = {}

    # Change

    def ask(self, session: int, queue: Queue) -> None:
        """A client subscribed. All its subscriptions ask for the same bounds."""
        self._queues[session] = queue
        self._policies.setdefault(session, set()).add(queue.overflow)

    # Look

    def look(self, node: NodeHost, status: SessionStatus, now: int) -> Iterator[Violation]:
        """How a session is at a node, after an act of that."""
        key = node.incarnation, status.session
        counted = status.dropped.get("queue_full", 0), status.expired
        before = self._counted.get(key, (0, 0))
        self._counted[key] = counted
        if counted[0] < before[0] or counted[1] < before[1]:
            before = 0, 0  # It is another session, that of a client which began anew.
        if counted != before:
            overflowed = 0 if self._has_no_gaps(status.session) else counted[0] - before[0]
            loss = _Loss(now, overflowed, counted[1] - before[1])
            self._losses.setdefault(status.session, []).append(loss)
        queue = self._queues.get(status.session)
        is_known = queue is not None and not status.connected and not _is_untold(node, status.session)
        if queue is not None and is_known and _is_over(queue, status):
            text = f"{node.settings.name} holds {status.queued} messages, {status.queued_bytes} bytes"
            yield Violation(now, Invariant.QUEUES, f"{text}, for a session that asked for {queue}")

    def has_lost(self, session: int, since: int) -> bool:
        """Whether a session has lost something since."""
        losses = self._losses.get(session)
        return losses is not None and losses[-1].at >= since

    def has_overflowed(self, session: int, since: int) -> bool:
        """Whether a session's queue has had no room for something since."""
        return any(loss.overflowed for loss in self._losses.get(session, ()) if loss.at >= since)

    def end(self, node: NodeHost, session: int, now: int) -> Iterator[Violation]:
        """A node ended a session, because its queue was full."""
        if Overflow.END_SESSION not in self._policies.get(session, set()):
            text = f"{node.settings.name} ends a session that asked for gaps"
            yield Violation(now, Invariant.QUEUES, text)

    def unexplained(self, sessions: Iterable[int], lacking: Iterable[Sent]) -> Sent | None:
        """A message that these sessions lack together, and that none of them can have lost; None: there is
        none. Of those published from any time on no more are lacking than were lost since."""
        losses = [loss for session in sessions for loss in self._losses.get(session, ())]
        latest_first = sorted({sent.id: sent for sent in lacking}.values(), key=lambda s: s.at, reverse=True)
        immortal = 0
        for number, sent in enumerate(latest_first, 1):
            since = [loss for loss in losses if loss.at >= sent.at]
            overflowed = sum(loss.overflowed for loss in since)
            immortal += sent.dies_at is None
            if immortal > overflowed or number > overflowed + sum(loss.expired for loss in since):
                return sent
        return None

    def _has_no_gaps(self, session: int) -> bool:
        return self._policies.get(session) == {Overflow.END_SESSION}


def _is_untold(node: NodeHost, session: int) -> bool:
    """Whether a node has made a session again after a restart, and does not know its bounds yet."""
    known = node.control.sessions.get(session)
    return known is not None and known.lingers and not (known.queue_messages or known.queue_bytes)


def _is_over(queue: Queue, status: SessionStatus) -> bool:
    has_many = bool(queue.messages) and status.queued > queue.messages
    return has_many or (bool(queue.bytes) and status.queued_bytes > queue.bytes)
