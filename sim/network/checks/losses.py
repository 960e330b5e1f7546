"""What owners may drop of a session's queue (§7.8), as exact rules.

An owner counts for each session the messages for which its queue had no room, and those that expired there.
The check reads both after each of the owner's acts, so every loss has a time.

- *Bounded*: the queue of an offline session is no longer than its client asked for. There are two exceptions:
  an owner that was restarted, or the next owner after it, does not know the bounds before its client comes
  (docs/guarantees.md); and what such an owner found in its store.
- *As asked*: a session ends because of its queue only if one of its subscriptions asked for that. If all of
  them did, the session has no gaps: what is then counted for it is of QoS 0, which is not queued but is sent
  at once or dropped.
- *Accounted for*: a client that lacks acknowledged messages lacks no more than were dropped for its session
  since they were published; of messages without an expiry, no more than its queue had no room for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hbroker._native import SessionStatus

from ..actions import Overflow, Queue
from ..hosts import NodeHost
from ..invariants import Invariant, Violation
from .applications import Sent

__all__ = ["Losses"]


@dataclass(frozen=True, slots=True)
class _Loss:
    """How many messages a session lost at one time: to its queue's bounds, and to their expiry."""

    at: int
    overflowed: int
    expired: int


class Losses:
    """The losses of all sessions."""

    def __init__(self) -> None:
        self._queues: dict[int, Queue] = {}
        self._policies: dict[int, set[Overflow]] = {}
        self._counted: dict[tuple[int, int], tuple[int, int]] = {}
        """By run of a node and session, the last counters."""
        self._losses: dict[int, list[_Loss]] = {}
        self._began: dict[int, int] = {}
        """By run of a node, when it began."""
        self._restored: dict[tuple[int, int], tuple[int, int]] = {}
        """By run of a node and session, how many messages and bytes the run found in its store."""
        self._untold: set[int] = set()
        """Sessions of which some run of a node did not know the bounds, because it had restored them."""
        self._told: set[tuple[int, int]] = set()
        """Runs of nodes, each with a session whose client has told it the bounds."""

    # Change

    def subscribe(self, session: int, queue: Queue) -> None:
        """A client subscribed. All its subscriptions ask for the same bounds."""
        self._queues[session] = queue
        self._policies.setdefault(session, set()).add(queue.overflow)

    # Checks

    def check(self, node: NodeHost, status: SessionStatus, now: int) -> Iterator[Violation]:
        """Notes and checks the status of a session after an act of its node."""
        key = node.incarnation, status.session
        if self._began.setdefault(node.incarnation, now) == now:
            self._restored[key] = status.queued, status.queued_bytes
        counted = status.dropped.get("queue_full", 0), status.expired
        before = self._counted.get(key, (0, 0))
        self._counted[key] = counted
        if counted[0] < before[0] or counted[1] < before[1]:
            before = 0, 0  # It is another session, of a client that began anew.
        if counted != before:
            overflowed = 0 if self._has_no_gaps(status.session) else counted[0] - before[0]
            loss = _Loss(now, overflowed, counted[1] - before[1])
            self._losses.setdefault(status.session, []).append(loss)
        queue = self._queues.get(status.session)
        is_untold = self._is_untold(node, status)
        is_known = queue is not None and not status.connected and not is_untold
        if queue is not None and is_known and _is_over(queue, status, self._restored.get(key, (0, 0))):
            text = f"{node.settings.name} holds {status.queued} messages, {status.queued_bytes} bytes"
            yield Violation(now, Invariant.QUEUES, f"{text}, for a session that asked for {queue}")

    def has_lost(self, session: int, since: int) -> bool:
        """Whether a session has lost a message since this time."""
        losses = self._losses.get(session)
        return losses is not None and losses[-1].at >= since

    def has_overflowed(self, session: int, since: int) -> bool:
        """Whether a session's queue has had no room for a message since this time."""
        return any(loss.overflowed for loss in self._losses.get(session, ()) if loss.at >= since)

    def end(self, node: NodeHost, session: int, now: int) -> Iterator[Violation]:
        """A node ended a session because its queue was full."""
        if Overflow.END_SESSION not in self._policies.get(session, set()):
            text = f"{node.settings.name} ends a session that asked for gaps"
            yield Violation(now, Invariant.QUEUES, text)

    def unexplained(self, sessions: Iterable[int], lacking: Iterable[Sent]) -> Sent | None:
        """A message that these sessions lack together, and that none of them can have lost; None: there is
        none.

        Of the messages published since any time, no more may be missing than were lost since.
        """
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

    def _is_untold(self, node: NodeHost, status: SessionStatus) -> bool:
        """Whether a node does not know the bounds of a session: it restored the session after a restart, or
        was handed it by a node that had, and its client has not come since."""
        key, known = (node.incarnation, status.session), node.control.sessions.get(status.session)
        has_bounds = known is not None and bool(known.queue_messages or known.queue_bytes)
        if known is not None and known.is_unconfirmed and not has_bounds:
            self._untold.add(status.session)
            return True
        if status.connected:
            self._told.add(key)
        return not has_bounds and status.session in self._untold and key not in self._told

    def _has_no_gaps(self, session: int) -> bool:
        return self._policies.get(session) == {Overflow.END_SESSION}


def _is_over(queue: Queue, status: SessionStatus, restored: tuple[int, int]) -> bool:
    has_many = bool(queue.messages) and status.queued > max(queue.messages, restored[0])
    return has_many or (bool(queue.bytes) and status.queued_bytes > max(queue.bytes, restored[1]))
