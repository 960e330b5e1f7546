"""Which retained messages a subscriber receives (§7.6).

A retained message belongs to its topic until a later one was acknowledged. The rules hold until it is *lost*:
its owner dies or loses its lease, or the topic has no owner for a while, because a handover has failed.

- *Not stale*: a new subscriber receives no retained message that another had superseded before it subscribed.
- *Not to groups*: members of shared groups receive none.
- *Not again*: no subscription of a run receives the same one twice.
- *Not missing*: a subscriber that subscribes while there is a retained message, and stays connected, receives
  it or a later one, unless that expires, or the session's queue overflows.

Messages of several publishers that overlap in time have no order, so none of them supersedes another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ..invariants import Invariant, Violation
from .applications import Application, Interest, Sent
from .losses import Losses

__all__ = ["Retention"]

GAP: Final = 10
"""A handover counts as failed after this number of checks in a row without an owner, twice a second."""


class Retention:
    """The retained messages of every topic."""

    def __init__(self, topics: Iterable[str], losses: Losses) -> None:
        self._losses = losses
        self._published: dict[str, list[Sent]] = {topic: [] for topic in topics}
        self._lost_at: dict[str, int] = {}
        self._gaps: dict[str, int] = {}

    # Change

    def publish(self, sent: Sent) -> None:
        """A message was published, with `retain` or without."""
        if sent.retain:
            self._published[sent.topic].append(sent)

    def lose(self, topics: Iterable[str], now: int) -> None:
        """The retained messages of these topics are lost."""
        self._lost_at |= dict.fromkeys(topics, now)

    def note_service(self, topic: str, is_served: bool, now: int) -> None:
        """Every half second: notes whether a topic has an owner."""
        self._gaps[topic] = 0 if is_served else self._gaps.get(topic, 0) + 1
        if self._gaps[topic] > GAP:
            self.lose([topic], now)

    # Checks

    def receive(
        self, application: Application, sent: Sent, listeners: Iterable[int], now: int
    ) -> Iterator[Violation]:
        """An application received a message as a retained one, for these of its subscriptions."""
        application.retained.add(sent.id)
        for listener in listeners:
            if (listener, sent.id) in application.received_by:
                text = f"{application.name} gets {sent} again as a retained one"
                yield Violation(now, Invariant.RETAINED, text)
            application.received_by.add((listener, sent.id))
        interests = (*application.interests.values(), *application.past)
        if interests and all(interest.group for interest in interests):
            text = f"{application.name} gets {sent} as a retained one, as a member of a group"
            yield Violation(now, Invariant.RETAINED, text)
        asked = [interest.asked_at for interest in interests if sent.topic in interest.topics]
        since = min(asked, default=0)
        lost = self._lost_at.get(sent.topic, 0)
        for other in self._published[sent.topic]:
            is_newer = _precedes(sent, other)
            if is_newer and other.at > lost and other.acknowledged is not None and other.acknowledged < since:
                text = f"{application.name} gets {sent}, though {other} came later"
                yield Violation(now, Invariant.RETAINED, text)

    def check(self, application: Application, now: int) -> Iterator[Violation]:
        """What an application should have received since it subscribed."""
        for interest in application.interests.values():
            for topic in () if interest.group else interest.topics:
                expected = self._retained(topic, interest.asked_at)
                if expected is None or not expected.payload or not _is_unbroken(application, interest, topic):
                    continue
                later = [s for s in self._published[topic] if s.at >= interest.asked_at]
                if any(s.qos == 0 for s in later):
                    continue  # It replaced the retained message, and may be lost.
                if any(not s.payload and s.at < (interest.made_at or now) for s in later):
                    continue  # It cleared the topic, and may have arrived before the subscription.
                if expected.may_be_dead(interest.made_at or now) or any(s.may_be_dead(now) for s in later):
                    continue
                if self._losses.has_lost(application.host.session, interest.asked_at):
                    continue
                if not any(_has_received(application, s) for s in (expected, *later)):
                    text = f"{application.name} subscribed to {interest.title}, and has not got {expected}"
                    yield Violation(now, Invariant.RETAINED, text)

    def _retained(self, topic: str, at: int) -> Sent | None:
        """The message that was retained at this time; None: there was certainly none, or it is not known
        which."""
        before = [sent for sent in self._published[topic] if sent.at < at]
        last = max(before, key=lambda sent: sent.at, default=None)
        if last is None or last.acknowledged is None or last.acknowledged >= at:
            return None
        is_last = all(_precedes(other, last) for other in before if other is not last)
        return last if is_last and last.at > self._lost_at.get(topic, 0) else None


def _precedes(one: Sent, other: Sent) -> bool:
    """Whether a message was distributed before the other was published, or had to be."""
    is_same_run = one.id[0] == other.id[0]
    is_over = one.acknowledged is not None and one.acknowledged < other.at
    return one.id < other.id if is_same_run else is_over


def _has_received(application: Application, sent: Sent) -> bool:
    """Whether a client received a message, in this run or an earlier one of the same session."""
    former = application.former
    is_former = former is not None and _has_received(former, sent)
    return sent.id in application.received_qos or sent.id in application.retained or is_former


def _is_unbroken(application: Application, interest: Interest, topic: str) -> bool:
    """Whether a subscription at QoS 1 or 2 was made, and had no break since it was asked for."""
    is_whole = interest.since.get(topic) is not None and interest.qos > 0
    return interest.is_made and is_whole and application.broken.get(topic, 0) < interest.asked_at
