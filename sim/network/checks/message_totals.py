"""What owners accept for sessions, as exact rules.

- *Adds up*: each message that an owner accepted for a session is delivered, expired, dropped for a reason, or
  still queued.
- *Accepted once*: all owners together, less what they handed over to other owners, accept no message twice
  for a session, wherever its topic moved. There is one exception: once more for each time that the topic
  moved to another owner before the publisher had its PUBACK, because the publisher sends the message to the
  new owner again (§7.4). The rule holds for a run without faults, and for persistent sessions for which
  nothing else is counted: no shared copies, wills, or retained messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from hbroker._native import SessionStatus

from ..hosts import NodeHost
from ..invariants import Invariant, Violation
from .applications import Application, Sent

__all__ = ["MessageTotals"]

LEAST_PART: Final = 1_000
"""Least number of bytes in each fragment of a large message except the last (§3.4, §7.5)."""


class MessageTotals:
    """The totals of all sessions."""

    def __init__(self) -> None:
        self._counted: dict[tuple[int, int], tuple[int, int]] = {}
        """What each run of a node accepted for each session, and how much of it it handed over."""
        self._ended: Counter[int] = Counter()
        """What was accepted and not handed over for each session that has ended."""
        self._subscribed_topics: dict[int, set[str]] = {}
        """The topics that each session's subscriptions match, in any run of its client."""
        self._sharing: set[int] = set()
        """The sessions that were members of groups."""
        self._is_disturbed = False

    # Change

    def subscribe(self, session: int, topics: Iterable[str], *, is_shared: bool) -> None:
        """A client subscribed."""
        self._subscribed_topics.setdefault(session, set()).update(topics)
        if is_shared:
            self._sharing.add(session)

    def disturb(self) -> None:
        """A fault occurs: a publisher may ask an owner that has lost what it accepted."""
        self._is_disturbed = True

    def count(self, node: NodeHost, status: SessionStatus) -> None:
        """Notes the status of a session after an act of its node."""
        key = node.incarnation, status.session
        accepted_before, moved = self._counted.get(key, (0, 0))
        if status.accepted < accepted_before:  # It is another session, of a client that began anew.
            self._ended[status.session] += accepted_before - moved
        self._counted[key] = status.accepted, status.dropped.get("moved", 0)

    # Checks

    def check(self, node: NodeHost, status: SessionStatus, now: int) -> Iterator[Violation]:
        """Checks whether what a node accepted for a session adds up."""
        ends = status.delivered + status.expired + sum(status.dropped.values()) + status.queued
        if status.accepted != ends:
            text = f"{node.settings.name} took {status.accepted} messages for a session, of {ends}"
            yield Violation(now, Invariant.ADDS_UP, text)

    def check_at_end(
        self,
        applications: Iterable[Application],
        published: Iterable[Sent],
        other_topics: Iterable[str],
        moves: Mapping[str, Iterable[int]],
        now: int,
    ) -> Iterator[Violation]:
        """Checks whether all owners together accepted each message once.

        `other_topics`: those of wills. `moves`: by topic, the times at which it moved to another owner.
        """
        if self._is_disturbed:
            return
        most: Counter[str] = Counter()
        others = set(other_topics)
        for sent in published:
            parts = len(sent.payload) // LEAST_PART + 1
            repeats = sum(sent.is_open_at(at) for at in moves[sent.topic]) if sent.qos else 0
            most[sent.topic] += parts * (1 + repeats)
            if sent.retain:
                others.add(sent.topic)
        totals = Counter(self._ended)
        for (_, session), (accepted, moved) in self._counted.items():
            totals[session] += accepted - moved
        for application in applications:
            session = application.host.session
            topics = self._subscribed_topics.get(session, set())
            if not application.expiry or session in self._sharing or topics & others:
                continue
            bound = sum(most[topic] for topic in topics)
            if totals[session] > bound:
                text = f"owners took {totals[session]} messages for {application.name}, of {bound}"
                yield Violation(now, Invariant.NOTHING_DOUBLED, text)
