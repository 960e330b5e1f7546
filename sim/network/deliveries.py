"""What must hold of messages, made exact.

A subscription is *whole* for a topic from when `subscribe` has returned (or, after a break, from when the
topic's owner holds it again) until a *break*: either side loses the link between them, the owner dies or
loses its lease, or the subscriber dies. Then:

- *Complete*: whoever comes to serve a topic holds every subscription that is whole for it.
- *Nothing lost*: at the moment when a publisher learns that its message of QoS 1 or 2 is distributed, the
  application of each subscriber has it whose subscription, of QoS 1 or 2, was whole from the message's
  publication on. A subscriber that was stalled then (§7.3) has it by the end, if its subscription is whole
  until then.
- *Adds up*: what an owner took for a session is delivered, expired, dropped for a reason, or still there.
- *Nothing doubled*: an application gets no message twice that was published at QoS 0, and none that comes
  to it at QoS 2.
- *Order*: an application gets a publisher's messages to a topic, at QoS 1 and 2, in the order of
  publication, not counting those that it has had before, nor those published before its subscription was
  made, or made again after the loss of a link: should such a one come again, it is new to the subscriber.
- *Intact*: a message has the bytes that were published.
- *Retained*: `retention`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from hbroker._native import Message, topic_matches
from hbroker.protocol.outcome import Published, Subscribed, SubscriptionFailed
from hbroker.protocol.packets import Reason
from hbroker.subtree import is_within

from .applications import Application, Interest, MessageId, Sent
from .hosts import ClientHost, NodeHost
from .invariants import Invariant, Ownership, Violation
from .retention import Retention
from .world import Address

__all__ = ["Deliveries"]

MOST_SESSIONS: Final = 1_000
DISTRIBUTED = (Reason.REASON_SUCCESS, Reason.REASON_NO_MATCHING_SUBSCRIBERS)


class Deliveries:
    """Every message published, and where it came."""

    def __init__(self, ownership: Ownership, topics: tuple[str, ...], now: Callable[[], int]) -> None:
        self._ownership = ownership
        self._topics = topics
        self._now = now
        self._retention = Retention(topics)
        self._sent: dict[MessageId, Sent] = {}
        self._open: dict[MessageId, Sent] = {}
        self._stalled: dict[int, int] = {}
        """When each session was last seen stalled."""
        self._owed: list[tuple[Application, Interest, Sent]] = []
        """What was acknowledged while a subscriber was stalled: it waits at the owner."""
        self._applications: dict[int, Application] = {}
        self.acknowledged = 0

    # Change

    def start(self, name: str, host: ClientHost) -> None:
        """A client process began."""
        self._applications[host.session] = Application(name, host)

    def end(self, host: ClientHost) -> None:
        """A client process died."""
        del self._applications[host.session]

    def subscribe(self, host: ClientHost, subscription: int, filter: str, qos: int) -> None:
        """A client asked for a subscription."""
        topics = tuple(topic for topic in self._topics if topic_matches(filter, topic))
        self._applications[host.session].interests[subscription] = Interest(filter, qos, topics, self._now())

    def unsubscribe(self, host: ClientHost, filter: str) -> list[int]:
        """A client ends its subscriptions to a filter, which are returned."""
        interests = self._applications[host.session].interests
        ended = [number for number, interest in interests.items() if interest.filter == filter]
        for number in ended:
            del interests[number]
        return ended

    def publish(self, sent: Sent) -> None:
        """A client published."""
        self._sent[sent.id] = sent
        self._retention.publish(sent)
        if sent.qos:
            self._open[sent.id] = sent

    def break_session(self, session: int, node: Address) -> None:
        """The link between a client and a node is down, by the one or the other.

        An earlier owner may have messages on their way.
        """
        application = self._applications.get(session)
        if application is None:
            return
        for topic in self._topics:
            if node in self._ownership.past[topic]:
                application.broken[topic] = self._now()
                for interest in application.interests.values():
                    interest.since.pop(topic, None)
                    interest.connected.pop(topic, None)

    def break_below(self, subtree: str) -> None:
        """The owner of what lies below lost its lease."""
        self._break([topic for topic in self._topics if is_within(topic, subtree)])

    def break_owner(self, owner: NodeHost) -> None:
        """An owner died. What was on its way to it died too."""
        self._break([topic for topic, last in self._ownership.owners.items() if last is owner])
        below = [t for t in self._topics if any(is_within(t, claim) for claim in owner.claims)]
        self._retention.lose([t for t in below if self._ownership.serves(t) is None], self._now())

    def _break(self, topics: list[str]) -> None:
        self._ownership.changed |= dict.fromkeys(topics, self._now())
        self._retention.lose(topics, self._now())
        for application in self._applications.values():
            for interest in application.interests.values():
                for topic in topics:
                    interest.since.pop(topic, None)

    # Look

    def look_for_stalls(self, node: NodeHost) -> None:
        """After each act of a node: who is stalled."""
        stalled = (status.session for status in node.engine.sessions(MOST_SESSIONS) if status.stalled)
        self._stalled |= dict.fromkeys(stalled, self._now())

    def look_at_accounts(self, nodes: Iterable[NodeHost]) -> Iterator[Violation]:
        """Every half second: whether what sessions took adds up, and which topics nobody serves."""
        for node in nodes:
            for status in node.engine.sessions(MOST_SESSIONS):
                ends = status.delivered + status.expired + sum(status.dropped.values()) + status.queued
                if status.accepted != ends:
                    text = f"{node.settings.name} took {status.accepted} messages for a session, of {ends}"
                    yield Violation(self._now(), Invariant.ADDS_UP, text)
        for topic in self._topics:
            self._retention.note_service(topic, self._ownership.serves(topic) is not None, self._now())

    def look_at_owner(self, owner: NodeHost, *, closely: bool) -> Iterator[Violation]:
        """Which subscriptions a node holds for the topics that it serves."""
        if forgotten := self._ownership.forgotten:
            self._break(forgotten)
        owned = [t for t in self._topics if self._ownership.owners.get(t) is owner and t not in forgotten]
        missing = [
            (application, interest, topic)
            for topic in owned
            for application in self._applications.values()
            for interest in application.interests.values()
            if interest.is_made and topic in interest.topics and (closely or topic not in interest.since)
        ]
        if not missing:
            return
        held = held_by(owner)
        for application, interest, topic in missing:
            if self._ownership.serves(topic) is not owner:
                continue
            if (application.host.session, interest.filter) in held:
                interest.hold(topic, self._now())
            elif topic in interest.since:
                text = f"{owner.settings.name} serves {topic} without {application.name}'s {interest.filter}"
                yield Violation(self._now(), Invariant.COMPLETE, text)
                del interest.since[topic]

    def look_at_client(self, host: ClientHost) -> Iterator[Violation]:
        """What a client got and learned."""
        application = self._applications.get(host.session)
        if application is None:
            return
        for message in host.messages[application.read :]:
            yield from self._receive(application, message)
        application.read = len(host.messages)
        for outcome in host.outcomes[application.outcomes :]:
            match outcome:
                case Subscribed():
                    if interest := application.interests.get(outcome.subscription):
                        yield from self._made(application, interest)
                case SubscriptionFailed():
                    application.interests.pop(outcome.subscription, None)
                case Published() if outcome.reason in DISTRIBUTED:
                    yield from self._distributed(self._open.pop((host.publisher, outcome.sequence)))
                case Published():
                    del self._open[host.publisher, outcome.sequence]
                case _:
                    pass
        application.outcomes = len(host.outcomes)

    @property
    def open(self) -> int:
        """Messages of QoS 1 and 2 whose living publishers have not learned what became of them."""
        alive = {application.host.publisher for application in self._applications.values()}
        return sum(publisher in alive for publisher, _ in self._open)

    def unmade(self) -> list[str]:
        """Subscriptions that have neither succeeded nor failed."""
        return [
            f"{application.name}'s {interest.filter}"
            for application in self._applications.values()
            for interest in application.interests.values()
            if not interest.is_made
        ]

    def lacking(self) -> Iterator[str]:
        """Subscriptions that are made, and that the owner of a topic does not hold now."""
        owners = {topic: self._ownership.serves(topic) for topic in self._topics}
        held = {owner: held_by(owner) for owner in owners.values() if owner is not None}
        for application in self._applications.values():
            for interest in application.interests.values():
                for topic in interest.topics:
                    owner = owners[topic]
                    is_held = owner and (application.host.session, interest.filter) in held[owner]
                    if interest.is_made and not is_held:
                        yield f"{topic} is served without {application.name}'s {interest.filter}"

    def missing(self, sent: Sent) -> list[str]:
        """Who is subscribed to a message's topic at QoS 1 or 2 and has not got it."""
        return [
            application.name
            for application in self._applications.values()
            if sent.id not in application.had
            and any(i.is_made and i.qos and sent.topic in i.topics for i in application.interests.values())
        ]

    def unwanted(self, node: NodeHost) -> Iterator[str]:
        """Subscriptions that a node holds for nobody."""
        wanted = {
            (session, interest.filter)
            for session, application in self._applications.items()
            for interest in application.interests.values()
        }
        for _, filter in held_by(node) - wanted:
            yield f"{node.settings.name} holds {filter} for nobody"

    def look_at_the_end(self) -> Iterator[Violation]:
        """What came, or did not, as long as it was promised."""
        for application in self._applications.values():
            yield from self._retention.look(application, self._now())
        for application, interest, sent in self._owed:
            whole = interest.since.get(sent.topic, sent.at + 1) <= sent.at
            is_wanted = interest in application.interests.values()
            is_there = self._applications.get(application.host.session) is application
            if whole and is_wanted and is_there and sent.id not in application.had:
                text = f"{sent} was acknowledged, and never came to {application.name}'s {interest.filter}"
                yield Violation(self._now(), Invariant.NOTHING_LOST, text)

    def _made(self, application: Application, interest: Interest) -> Iterator[Violation]:
        """`subscribe` has returned. An owner that died after it confirmed is a break like any other."""
        interest.is_made = True
        for topic in interest.topics:
            changed = max(self._ownership.changed.get(topic, 0), application.broken.get(topic, 0))
            if changed >= interest.asked_at:
                continue
            interest.hold(topic, self._now())
            owner = self._ownership.serves(topic)
            if owner is not None and (application.host.session, interest.filter) not in held_by(owner):
                text = f"{application.name}'s {interest.filter} is made, and {owner.settings.name} lacks it"
                yield Violation(self._now(), Invariant.COMPLETE, text)

    def _distributed(self, sent: Sent) -> Iterator[Violation]:
        self.acknowledged += 1
        sent.acknowledged = self._now()
        for application in self._applications.values():
            for interest in application.interests.values():
                whole = interest.qos > 0 and interest.since.get(sent.topic, sent.at + 1) <= sent.at
                if not whole or sent.id in application.had:
                    continue
                if self._stalled.get(application.host.session, 0) >= sent.at:
                    self._owed.append((application, interest, sent))
                    continue
                text = f"{sent} is acknowledged, and {application.name} has it not by {interest.filter}"
                yield Violation(self._now(), Invariant.NOTHING_LOST, text)

    def _receive(self, application: Application, message: Message) -> Iterator[Violation]:
        sent = self._sent[message.publisher, message.sequence]
        if (message.topic, message.payload) != (sent.topic, sent.payload):
            yield Violation(self._now(), Invariant.INTACT, f"{application.name} gets {sent} mutilated")
        if message.retained:
            yield from self._retention.receive(application, sent, self._now())
            return
        before = application.had.setdefault(sent.id, set())
        if before and (sent.qos == 0 or message.qos == 2 in before):
            text = f"{application.name} gets {sent} again at QoS {message.qos}"
            yield Violation(self._now(), Invariant.NOTHING_DOUBLED, text)
        if message.qos and not before:
            yield from self._keep_order(application, sent)
        before.add(message.qos)

    def _keep_order(self, application: Application, sent: Sent) -> Iterator[Violation]:
        key = sent.id[0], sent.topic
        last = application.last.get(key)
        if last is None or last.id < sent.id:
            application.last[key] = sent
            return
        if any(i.connected.get(sent.topic, sent.at) < sent.at for i in application.interests.values()):
            text = f"{application.name} gets {sent} after message {last.id[1]}"
            yield Violation(self._now(), Invariant.ORDER, text)


def held_by(owner: NodeHost) -> set[tuple[int, str]]:
    """(session, filter) of every subscription that a node holds."""
    return {(subscription.session, subscription.filter) for subscription in owner.control.subscribers}
