"""What must hold of messages, as exact rules.

A subscription is *whole* for a topic from when `subscribe` has returned (or, after a break, from when the
topic's owner holds it again) until a *break*. A break is: the owner dies or loses its lease, or the session
ends. A session ends when either side loses the link between them, or the subscriber dies; a persistent
session ends only when it has been without a link for its expiry. Then:

- *Complete*: a node that begins to serve a topic holds every subscription that is whole for it.
- *Nothing lost*: when a publisher learns that its message of QoS 1 or 2 is distributed, each subscriber's
  application has it if its subscription, of QoS 1 or 2, was whole since the message was published. A
  subscriber that was offline or stalled then (§7.3) has it by the end: `pending_deliveries`.
- *Nothing doubled*: an application receives no message twice that was published at QoS 0, and none that comes
  to it at QoS 2.
- *Order*: an application receives a publisher's messages to a topic, at QoS 1 and 2, in the order of
  publication. Not counted are messages that it has received before, in this run or an earlier one of its
  session, and those published before its subscription was made, or made again after the loss of a link: if
  such a one comes again, it is new to the subscriber. Not counted either is a message that its queue
  discarded at an owner from which the topic moved before the message was acknowledged (docs/guarantees.md),
  or one that an owner had stored before a bit of its store changed.
- *Intact*: a message has the bytes that were published. *Genuine*: none is an impostor's (`impostors`).
- *Adds up*, and whether owners accepted each message once: `message_totals`.
- *Shared*: `sharing`. *Retained*: `retention`. *Wills*: `wills`. *Expires*: `expiries`. *Queues*, and what
  may be missing if queues are full or messages expire: `losses`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from hbroker._native import Message, topic_matches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Reason
from hbroker.protocol.results import Published, Subscribed, SubscriptionFailed, WillSet
from hbroker.protocol.subscriptions.client.options import Key
from hbroker.subtree import is_within

from ..actions import Queue
from ..hosts import ClientHost, NodeHost
from ..impostors import PAYLOAD, ImpostorHost
from ..invariants import Invariant, Ownership, Violation
from ..world import Address
from .absences import Absences
from .applications import Application, Interest, MessageId, Sent
from .ended_leases import EndedLeases
from .expiries import Expiries
from .losses import Losses
from .message_totals import MessageTotals
from .paces import Paces
from .pending_deliveries import PendingDeliveries
from .retention import Retention
from .sharing import Sharing
from .successions import Successions
from .wills import Wills

__all__ = ["Deliveries"]

SECOND: Final = 1_000_000
MOST_SESSIONS: Final = 1_000
DISTRIBUTED = (Reason.REASON_SUCCESS, Reason.REASON_NO_MATCHING_SUBSCRIBERS)


class Deliveries:
    """All published messages, and which applications received them."""

    def __init__(self, ownership: Ownership, topics: tuple[str, ...], now: Callable[[], int]) -> None:
        self._ownership = ownership
        self._topics = topics
        self._now = now
        self._sent: dict[MessageId, Sent] = {}
        self._unanswered: dict[MessageId, Sent] = {}
        self._stalled: dict[int, int] = {}
        """By session, when it was last seen stalled or offline."""
        self._damaged: dict[str, int] = {}
        """By topic, when its owner last reported that its store is damaged."""
        self._unnoted: dict[str, int] = {}
        """By topic, when an owner died whose disk had been full: it may not have noted what it discarded."""
        self._flipped: dict[Address, list[str]] = {}
        """By node, the topics that it owned when a bit of its store was flipped."""
        self._losses = Losses()
        self.message_totals = MessageTotals()
        self._retention = Retention(topics, self._losses)
        self._paces = Paces()
        self.expiries = Expiries()
        self._ended_leases = EndedLeases()
        self._pending = PendingDeliveries(self._losses, self._ended_leases)
        self._absences = Absences(ownership)
        self._stored: dict[str, NodeHost] = {}
        """By topic, its owner that died and had stored what waited."""
        self.successions = Successions()
        self._sharing = Sharing(ownership, now, self._losses)
        self.wills = Wills(ownership, now, self._losses)
        self._applications: dict[int, Application] = {}
        self.acknowledged = 0

    # Change

    def start(self, name: str, host: ClientHost) -> list[Interest]:
        """A client process began. Returns what an earlier run of its session subscribed to."""
        session_options = host.control.session_options
        application = Application(name, host, self._now(), session_options.expiry_s * SECOND)
        former = self._applications.get(host.session)
        if former is not None:
            (application.start_clean if session_options.clean_start else application.resume)(former)
        self._applications[host.session] = application
        self._absences.begin(host.session, application.expiry)
        self.wills.client_resumed(host.session)
        if host.pace is not None:
            self._paces.mark_slow(host.session)
        if host.grants_little:
            self.expiries.limit_wait(host.session)
        return [] if former is None else list(former.interests.values())

    def end(self, host: ClientHost, *, ends_session: bool, is_crash: bool) -> None:
        """A client process died, or closed and perhaps ended its session."""
        application = self._applications[host.session]
        if is_crash:
            self.wills.client_died(host.session)
        self._sharing.end(host.session)
        application.ended_at = self._now()
        self._absences.end(host.session, self._now())
        if ends_session or not application.expiry:
            del self._applications[host.session]
            for interest in application.interests.values():
                self._sharing.leave(host.session, interest)

    def subscribe(
        self, host: ClientHost, subscription: int, filter: str, qos: int, group: str, queue: Queue
    ) -> None:
        """A client asked for a subscription."""
        topics = tuple(topic for topic in self._topics if topic_matches(filter, topic))
        application = self._applications[host.session]
        interest = application.interest(Interest(filter, qos, topics, self._now(), group, queue))
        self._losses.subscribe(host.session, queue)
        self._paces.subscribe(host.session, queue)
        self.message_totals.subscribe(host.session, topics, is_shared=bool(group))
        application.interests[subscription] = interest
        self._absences.subscribe(host.session, interest.key)
        if group:
            self._sharing.join(host.session, interest)

    def unsubscribe(self, host: ClientHost, filter: str) -> list[int]:
        """A client ends its subscriptions to a filter. Returns their numbers."""
        application = self._applications[host.session]
        ended = [number for number, interest in application.interests.items() if interest.filter == filter]
        for number in ended:
            self._withdraw(application, number)
        return ended

    def handle_suback(self, host: ClientHost, node: Address, suback: pb.SubAck) -> None:
        """A client receives a SUBACK.

        If the owner did not have the subscription any more (§6.4), the results of later runs count from now
        on. A run that waits for `Subscribed` learns it from that. To the owner's topics, messages that their
        publishers send again are new to it.
        """
        application = self._applications.get(host.session)
        if application is None or application.host is not host or not suback.active or suback.resumed:
            return
        owned = [topic for topic, owner in self._ownership.owners.items() if owner.address == node]
        for interest in application.interests.values():
            if interest.key != (suback.group, suback.filter):
                continue
            for topic in owned:
                interest.connected.pop(topic, None)
            if not interest.is_awaited:
                self._pending.resume(host.session, interest, is_resumed=False)
                interest.made_at = self._now()

    def handle_unsubscribe(self, group: str, filter: str) -> None:
        """An owner learns that one of its subscribers has ended a subscription."""
        self._sharing.handle_unsubscribe(group, filter)

    def publish(self, sent: Sent) -> None:
        """A client published a message."""
        self._sent[sent.id] = sent
        self._retention.publish(sent)
        if sent.qos:
            self._unanswered[sent.id] = sent

    def lose_link(self, session: int, node: Address, reason: str, *, by_node: bool) -> None:
        """The link between a client and a node is down, at the one or the other.

        A former owner may still have messages in flight.
        """
        application = self._applications.get(session)
        self._sharing.change(session)
        if by_node:
            self._note_stall(session)
            self._absences.lose_link(session, node, self._now())
            self.expiries.lose_link(session, node, self._now())
            self.wills.lose_link(session, node, reason)
        if application is None:
            return
        if by_node and not application.expiry:
            self._sharing.end(session)  # At the node the session ends with its link.
        for topic in self._topics:
            if node in self._ownership.past[topic]:
                application.broken[topic] = self._now()
                if not application.expiry:
                    for interest in application.interests.values():
                        interest.end(topic)

    def overflow(self, session: int, node: NodeHost) -> Iterator[Violation]:
        """A node ended a session because its queue was full."""
        yield from self._losses.end(node, session, self._now())
        self._note_stall(session)
        if application := self._applications.get(session):
            for topic in self._topics:
                if node.address in self._ownership.past[topic]:
                    application.broken[topic] = self._now()
                    for interest in application.interests.values():
                        interest.end(topic)
                        self.successions.end(topic, interest)

    def end_lease(self, owner: NodeHost | None, subtree: str) -> None:
        """The lease of a subtree has ended: that of `owner`, or (None) that of the last owner of each
        topic."""
        below = [topic for topic in self._topics if is_within(topic, subtree)]
        for topic in below:
            last = owner or self._ownership.owners.get(topic)
            if last is not None and last.address in self._ownership.past[topic]:
                self._ended_leases.begin(last, topic, self._now())
        self.wills.end_lease(below)
        self._interrupt(below)

    def expect_next_owner(self, owner: NodeHost, saved_before: int | None = None) -> None:
        """An owner is about to die, and the next owner of its topics must find its subscribers.

        `saved_before`: its disk has been full since then, so this holds for subscribers of before that time.
        """
        topics = [topic for topic, last in self._ownership.owners.items() if last is owner]
        if saved_before is not None:
            topics = [topic for topic in topics if self._ownership.changed[topic] < saved_before]
        self.successions.begin(topics, self._present, saved_before)

    def end_owner(self, owner: NodeHost) -> None:
        """An owner died, and with it the messages in flight to it."""
        self.expiries.lose_node(owner.address, self._now())
        self._absences.lose_node(owner.address, self._now())
        topics = [topic for topic, last in self._ownership.owners.items() if last is owner]
        if owner.files.has_failed:
            self._unnoted |= dict.fromkeys(topics, self._now())
        if owner.files.is_flipped:
            self._flipped.setdefault(owner.address, []).extend(topics)
        if owner.keeps_what_waits:
            self._stored |= dict.fromkeys(topics, owner)
            self._interrupt(topics)
            self.wills.lose(topics)
        else:
            self._break(topics)
        lapsed = self._ended_leases.lose(owner)
        self.wills.lose(topic for topic, _ in lapsed)
        for topic, end in lapsed:
            for interest in self._interests:
                if interest.kept.get(topic, end + 1) <= end:
                    del interest.kept[topic]
        below = [t for t in self._topics if any(is_within(t, claim) for claim in owner.claims)]
        self._retention.lose([t for t in below if self._ownership.current_owner(t) is None], self._now())

    def note_damage(self, node: NodeHost) -> None:
        """A node has reported that its store is damaged. What it stored of a message may be lost from now on.

        A message that was lost before, or without a report, has no excuse.
        """
        topics = self._flipped.get(node.address, [])
        self._damaged |= dict.fromkeys(topics, self._now())
        self._break(topics)
        if not node.knows_of_damage:
            self._pending.excuse(topics, self._now())

    def _break(self, topics: list[str]) -> None:
        self._interrupt(topics)
        self.wills.lose(topics)
        self._forget_kept(topics)

    def _forget_kept(self, topics: list[str]) -> None:
        for interest in self._interests:
            for topic in topics:
                interest.kept.pop(topic, None)

    def _interrupt(self, topics: list[str]) -> None:
        self._ownership.changed |= dict.fromkeys(topics, self._now())
        self._retention.lose(topics, self._now())
        for interest in self._interests:
            for topic in topics:
                interest.since.pop(topic, None)

    # Checks

    def check_sessions(self, node: NodeHost) -> Iterator[Violation]:
        """After each act of a node: which sessions are stalled, offline, or have lost messages."""
        for status in node.engine.sessions(MOST_SESSIONS):
            self.message_totals.count(node, status)
            yield from self._losses.check(node, status, self._now())
            yield from self._paces.check(node, status, self._now())
            may_lack = status.stalled or status.has_backlog or not status.connected
            if may_lack or self._losses.has_lost(status.session, self._now()):
                self._note_stall(status.session)
            if status.connected:
                self._absences.gain_link(status.session, node.address, self._now())
                self.expiries.gain_link(status.session, node.address, self._now())

    def check_timeout(self, owner: NodeHost, session: int) -> Iterator[Violation]:
        """The idle timeout of a session's link is over at a node. If nothing fails, its client has answered
        each owner of its topics."""
        application = self._applications.get(session)
        if application is None or application.has_ended or self.successions.is_disturbed:
            return
        held = subscriptions_at(owner)
        for interest in application.interests.values():
            for topic in interest.topics:
                is_held = self._ownership.current_owner(topic) is owner and (session, interest.key) in held
                if is_held and interest.is_made:
                    text = f"{owner.settings.name} ends the link of {application.name}'s {interest.title}"
                    yield Violation(self._now(), Invariant.COMPLETE, text)

    def check_totals(self, nodes: Iterable[NodeHost]) -> Iterator[Violation]:
        """Every half second: whether the sessions' counters add up, which sessions may have ended, and which
        topics have no owner."""
        held = set()
        for node in nodes:
            for status in node.engine.sessions(MOST_SESSIONS):
                held.add(status.session)
                yield from self.message_totals.check(node, status, self._now())
        for session, topic in self._absences.ended(self._now()):
            application = self._applications.get(session)
            if application is not None or session in held:
                self._sharing.end(session)
            for interest in application.interests.values() if application else ():
                interest.end(topic)
        self._end_lapsed_sessions()
        for topic in self._topics:
            self._retention.note_service(topic, self._ownership.current_owner(topic) is not None, self._now())

    def check_owner(self, owner: NodeHost, *, closely: bool) -> Iterator[Violation]:
        """Which subscriptions a node holds for the topics that it serves."""
        if forgotten := self._ownership.forgotten:
            self._break(forgotten)
        owned = [t for t in self._topics if self._ownership.owners.get(t) is owner and t not in forgotten]
        self._forget_kept([t for t in owned if not self._has_stored(owner, t)])
        self.wills.resume(
            self._ended_leases.end(owner, [t for t in owned if self._ownership.current_owner(t) is owner])
        )
        missing = [
            (application, interest, topic)
            for topic in owned
            for application in self._applications.values()
            for interest in application.interests.values()
            if interest.is_made and topic in interest.topics and (closely or topic not in interest.since)
        ]
        if not missing:
            return
        held = subscriptions_at(owner)
        for application, interest, topic in missing:
            if self._ownership.current_owner(topic) is not owner:
                continue
            session = application.host.session
            if _has_old_options(owner, session, interest):
                continue
            if (session, interest.key) in held:
                is_over = self._absences.is_over(session, topic, self._now())
                if not is_over and not _is_expiry_unknown(owner, application):
                    interest.mark_whole(topic, self._now())
            elif topic in interest.since:
                text = f"{owner.settings.name} serves {topic} without {application.name}'s {interest.title}"
                yield Violation(self._now(), Invariant.COMPLETE, text)
                del interest.since[topic]

    def _has_stored(self, owner: NodeHost, topic: str) -> bool:
        """Whether the owner of a topic has what the owner before has stored, if that one died."""
        before = self._stored.pop(topic, owner)
        return before is owner or owner.is_next_run_of(before)

    def check_client(self, host: ClientHost) -> Iterator[Violation]:
        """What a client received and learned."""
        if isinstance(host, ImpostorHost):
            yield from host.check()
        application = self._applications.get(host.session)
        if application is None:
            return
        for message in host.messages[application.read :]:
            yield from self._receive(application, message)
        application.read = len(host.messages)
        for result in host.results[application.results :]:
            match result:
                case Subscribed():
                    if interest := application.interests.get(result.subscription):
                        self._pending.resume(host.session, interest, is_resumed=result.resumed)
                        yield from self._subscription_made(application, interest, is_resumed=result.resumed)
                case WillSet():
                    self.wills.confirm(host.session)
                case SubscriptionFailed():
                    self._withdraw(application, result.subscription)
                case Published() if result.reason in DISTRIBUTED:
                    yield from self._message_distributed(
                        self._unanswered.pop((host.publisher, result.sequence))
                    )
                case Published():
                    del self._unanswered[host.publisher, result.sequence]
                case _:
                    pass
        application.results = len(host.results)

    @property
    def unanswered(self) -> int:
        """The number of messages of QoS 1 and 2 without a result, of publishers that run."""
        alive = {application.host.publisher for application in self._present}
        return sum(publisher in alive for publisher, _ in self._unanswered)

    def pending_subscriptions(self) -> list[str]:
        """Subscriptions that have neither succeeded nor failed."""
        return [
            f"{application.name}'s {interest.title}"
            for application in self._present
            for interest in application.interests.values()
            if interest.is_awaited
        ]

    def missing_subscriptions(self) -> Iterator[str]:
        """Subscriptions that are made, and that the owner of a topic does not hold now."""
        owners = {topic: self._ownership.current_owner(topic) for topic in self._topics}
        held = {owner: subscriptions_at(owner) for owner in owners.values() if owner is not None}
        for application in self._present:
            for interest in application.interests.values():
                for topic in interest.topics:
                    owner = owners[topic]
                    is_held = owner and (application.host.session, interest.key) in held[owner]
                    if interest.is_made and not is_held:
                        yield f"{topic} is served without {application.name}'s {interest.title}"

    def missing_subscribers(self, sent: Sent) -> list[str]:
        """Subscribers of a message's topic at QoS 1 or 2 that have not received it."""
        lacking = [application for application in self._present if sent.id not in application.received_qos]
        subscribers = [
            application.name
            for application in lacking
            if any(_wants(interest, sent) for interest in application.interests.values())
        ]
        return [*subscribers, *self._sharing.groups_lacking(sent, self._present_interests)]

    def unclaimed_subscriptions(self, node: NodeHost) -> Iterator[str]:
        """Subscriptions that a node holds for no client."""
        wanted = {
            (session, interest.key)
            for session, application in self._applications.items()
            for interest in application.interests.values()
            if not application.has_ended
        }
        for _, (_, filter) in (
            subscriptions_at(node) - wanted - set(self._absences.possible_remains(self._now()))
        ):
            yield f"{node.settings.name} holds {filter} for nobody"

    def check_at_end(self) -> Iterator[Violation]:
        """Checks at the end of a run: whether everything came that was promised."""
        for application in self._present:
            yield from self._retention.check(application, self._now())
        yield from self._pending.check_at_end(self._applications, self._now())
        yield from self._sharing.check_at_end(self._present_interests)
        yield from self.wills.check_at_end(self._present)
        yield from self.message_totals.check_at_end(
            self._applications.values(),
            self._sent.values(),
            self.wills.topics,
            self._ownership.moves,
            self._now(),
        )

    def _end_lapsed_sessions(self) -> None:
        """What waits at a former owner ends with its session there."""
        for topic in self._topics:
            for holder in self._ended_leases.holders(topic):
                for session, application in self._applications.items():
                    if self._absences.is_over_at(session, holder.address, self._now()):
                        for interest in application.interests.values():
                            interest.kept.pop(topic, None)

    @property
    def _interests(self) -> Iterator[Interest]:
        return (i for application in self._applications.values() for i in application.interests.values())

    @property
    def _present(self) -> Iterator[Application]:
        """The clients that run."""
        return (application for application in self._applications.values() if not application.has_ended)

    @property
    def _present_interests(self) -> set[Interest]:
        """The subscriptions of the clients that run."""
        return {interest for application in self._present for interest in application.interests.values()}

    def _note_stall(self, session: int) -> None:
        self._stalled[session] = self._now()
        self._sharing.change(session)

    def _withdraw(self, application: Application, subscription: int) -> None:
        interest = application.withdraw(subscription)
        if interest is not None and interest.group:
            self._sharing.leave(application.host.session, interest)

    def _subscription_made(
        self, application: Application, interest: Interest, *, is_resumed: bool
    ) -> Iterator[Violation]:
        """`subscribe` has returned. If an owner died after it confirmed, that is a break like any other."""
        interest.is_awaited = False
        if interest.made_at is None or not is_resumed:
            interest.made_at = self._now()
        for topic in interest.topics:
            changed = max(self._ownership.changed.get(topic, 0), application.broken.get(topic, 0))
            if changed >= interest.asked_at:
                continue
            interest.mark_whole(topic, self._now())
            owner = self._ownership.current_owner(topic)
            if owner is not None and (application.host.session, interest.key) not in subscriptions_at(owner):
                text = f"{application.name}'s {interest.title} is made, and {owner.settings.name} lacks it"
                yield Violation(self._now(), Invariant.COMPLETE, text)

    def _message_distributed(self, sent: Sent) -> Iterator[Violation]:
        self.acknowledged += 1
        sent.acknowledged = self._now()
        yield from self._sharing.distribute(sent, self._stalled)
        for session, application in self._applications.items():
            for interest in application.interests.values():
                is_promised = interest.qos and not interest.group and sent.topic in interest.topics
                if not is_promised or application.may_lack(sent):
                    continue
                is_whole = interest.since.get(sent.topic, sent.at + 1) <= sent.at
                if not is_whole and not self.successions.promises(interest, sent):
                    is_old = interest.made_at is not None and interest.made_at <= sent.at
                    is_exempt = self._ownership.was_forgotten(sent.topic, sent.at)
                    if application.expiry and is_old and not is_exempt:
                        self._pending.miss(interest, sent)
                elif self._stalled.get(session, 0) >= sent.at:
                    self._pending.wait(session, interest, sent)
                else:
                    text = f"{sent} is acknowledged, and {application.name} has it not by {interest.title}"
                    yield Violation(self._now(), Invariant.NOTHING_LOST, text)

    def _receive(self, application: Application, message: Message) -> Iterator[Violation]:
        if message.payload.startswith(PAYLOAD):
            text = f"{application.name} gets what an impostor published to {message.topic}"
            yield Violation(self._now(), Invariant.GENUINE, text)
            return
        if (will := self.wills.read(application, message)) is not None:
            yield from will
            return
        sent = self._sent[message.publisher, message.sequence]
        if (message.topic, message.payload) != (sent.topic, sent.payload):
            yield Violation(self._now(), Invariant.INTACT, f"{application.name} gets {sent} mutilated")
        if message.retained:
            yield from self._retention.receive(application, sent, message.subscriptions, self._now())
            return
        yield from self._sharing.receive(application, sent)
        before = application.received_qos.setdefault(sent.id, set())
        if before and (sent.qos == 0 or message.qos == 2 in before):
            text = f"{application.name} gets {sent} again at QoS {message.qos}"
            yield Violation(self._now(), Invariant.NOTHING_DOUBLED, text)
        if message.qos and not before:
            yield from self._keep_order(application, sent)
        before.add(message.qos)

    def _may_be_refused(self, sent: Sent) -> bool:
        """Whether an owner refuses a message as expired when its publisher sends it again, because it had no
        PUBACK when its topic moved."""
        has_moved = self._ownership.changed.get(sent.topic, 0) >= sent.at
        return sent.acknowledged is None and has_moved and sent.may_be_dead(self._now())

    def _was_given_up(self, session: int, sent: Sent) -> bool:
        """Whether a session's queue may have discarded a message that its publisher sends again.

        The publisher does so if another subscriber had not acknowledged the message when its topic moved, at
        any time, or if the publisher lost its link.
        """
        runs = (each for each in self._applications.values() if each.name == sent.publisher)
        broken_at = max((run.broken.get(sent.topic, 0) for run in runs), default=0)
        moves = self._ownership.moves.get(sent.topic, ())
        is_sent_again = sent.is_open_at(broken_at) or any(sent.is_open_at(moved_at) for moved_at in moves)
        return is_sent_again and self._losses.has_overflowed(session, sent.at)

    def _was_discarded(self, session: int, sent: Sent) -> bool:
        """Whether a session's queue may have discarded a message, and its node's next run has it, because the
        disk was full."""
        return sent.at <= self._unnoted.get(sent.topic, 0) and self._losses.has_overflowed(session, sent.at)

    def _keep_order(self, application: Application, sent: Sent) -> Iterator[Violation]:
        key = sent.id[0], sent.topic
        last = application.last.get(key)
        if last is None or last.id < sent.id:
            application.last[key] = sent
            return
        if application.former is not None and application.former.has_received(sent.id):
            return  # Its publisher sends it again, because the PUBACK did not reach it.
        if self._may_be_refused(sent):
            return  # It was in flight from the former owner.
        if self._was_given_up(application.host.session, sent):
            return  # The session had no room for it when it came first.
        if self._was_discarded(application.host.session, sent):
            return  # Nor did it have any then; its node could not note that, and has been restarted.
        if sent.at <= self._damaged.get(sent.topic, 0):
            return  # What was stored of it is damaged, and its publisher sends it again.
        if self._ended_leases.may_come_late(sent.topic, sent.at):
            return  # It waited at a former owner, while the next one sent newer ones.
        if self._ownership.was_forgotten(sent.topic, sent.at):
            return  # Of two owners, one queued it, and the other accepted the later message.
        interests = application.interests.values()
        if any(interest.group for interest in interests) and self._sharing.has_changed(
            application.host.session, sent
        ):
            return  # Another member received it first.
        if any(interest.connected.get(sent.topic, sent.at) < sent.at for interest in interests):
            text = f"{application.name} gets {sent} after message {last.id[1]}"
            yield Violation(self._now(), Invariant.ORDER, text)


def _wants(interest: Interest, sent: Sent) -> bool:
    """Whether a subscription is for a message's topic, at QoS 1 or 2, and not shared."""
    return interest.is_made and interest.qos > 0 and not interest.group and sent.topic in interest.topics


def _is_expiry_unknown(node: NodeHost, application: Application) -> bool:
    """Whether a node does not know the expiry of a client's session: it restored the session after a restart,
    or was handed it by a node that had done so.

    It ends such a session if the client does not come back.
    """
    known = node.control.sessions.get(application.host.session)
    if known is None:
        return False
    is_handed_over = application.has_ended and known.expiry_s * SECOND < application.expiry
    return known.is_unconfirmed or is_handed_over


def _has_old_options(owner: NodeHost, session: int, interest: Interest) -> bool:
    """Whether an owner has a subscription with an earlier QoS, because its disk failed when the client asked
    again, and it has been restarted since (docs/guarantees.md)."""
    known = owner.control.subscription_store.get(session, interest.key)
    return known is not None and known.qos != interest.qos and owner.files.has_failed


def subscriptions_at(owner: NodeHost) -> set[tuple[int, Key]]:
    """(session, subscription) of every subscription that a node holds."""
    return {(subscription.session, subscription.key) for subscription in owner.control.subscription_store}
