"""Subscriptions at a node: discovery, storage, and what moves with a subtree (§6, §5.4).

Discovery stores nothing: each node answers whether its own jurisdiction can have a match, and forwards the
request to each child that the filter touches. Only a SUBSCRIBE within a session with a responsible node is
stored.

If a subtree has moved (§5.4), its subscribers are informed a few at a time. A node may have tens of thousands
of subscriptions to one subtree. The first round follows when the change is complete, and each other round
after a pause, in order. So the node's other work goes on in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from hbroker._native import SessionClaimedEvent, filter_is_valid, filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.context import NodeContext
from hbroker.protocol.ownership.ended_leases import EndedLeases
from hbroker.protocol.ownership.jurisdiction import Delegation, Grant
from hbroker.protocol.packets import Address, Cut, Reason, address_of, pack
from hbroker.protocol.requester import ForwardingLimits, Requester
from hbroker.protocol.sessions.client_rights import ClientRights
from hbroker.protocol.sessions.session_table import Session, SessionTable
from hbroker.protocol.sessions.subscription_store import (
    MOST_OVERFLOW,
    MOST_QOS,
    Key,
    Subscription,
    SubscriptionStore,
)
from hbroker.protocol.storage import SavedSession
from hbroker.protocol.subscriptions.owner.suback_packets import SubAcks
from hbroker.protocol.subscriptions.shared import group_is_valid
from hbroker.protocol.timers import TimerQueue, earliest
from hbroker.rights.rights import Rights

if TYPE_CHECKING:
    from hbroker.protocol.handover.subtree_state import ReceivedState

__all__ = ["Move", "OwnerSubscriptions", "SubscriptionAnnouncements", "SubtreeMovedAway"]


@dataclass(frozen=True, slots=True)
class SubtreeMovedAway:
    """A subtree went to another owner, which `cut` names. `with_sessions`: by a handover, with the queues of
    the sessions."""

    cut: Cut
    with_sessions: bool


Move: TypeAlias = SubtreeMovedAway | str
"""A subtree that went away, or the subtree that came here."""

PER_ITERATION: Final = 128
PAUSE: Final = 2_000
"""Microseconds between two rounds."""
_MOST_REVIEWED: Final = 1_000
"""The most subscriptions of a session that are looked at when its client's rights change. A session with more
ends."""


class SubscriptionAnnouncements:
    """The announcements of moved subtrees: calls `announce(subscription, move)` for each subscription, a few
    in each round."""

    def __init__(self, announce: Callable[[Subscription, Move], None]) -> None:
        self._announce = announce
        self._queue: deque[tuple[Subscription, Move]] = deque()
        self._next_round_at: int | None = None

    def add(self, subscriptions: Iterable[Subscription], move: Move) -> None:
        """Adds announcements behind all earlier ones. The first is made in a later call, when the change is
        complete."""
        was_idle = not self._queue
        self._queue.extend((subscription, move) for subscription in subscriptions)
        if was_idle and self._queue:
            self._next_round_at = 0

    def handle_timeout(self, now: int) -> None:
        """Runs the next round, if it is due."""
        if self._next_round_at is not None and now >= self._next_round_at:
            for _ in range(min(PER_ITERATION, len(self._queue))):
                self._announce(*self._queue.popleft())
            self._next_round_at = now + PAUSE if self._queue else None

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: nothing waits."""
        return self._next_round_at


class OwnerSubscriptions:
    """A node's part of §6. `watch(subscription, ended)` is called with every change, for handovers under
    way."""

    def __init__(
        self,
        context: NodeContext,
        watch: Callable[[Subscription, bool], None],
        client_rights: ClientRights,
    ) -> None:
        self._client_rights = client_rights
        self._settings = settings = context.settings
        self._core = context.core
        self._jurisdiction = context.jurisdiction
        self._has_restored_queues = context.has_restored_queues
        self._diagnostics = context.diagnostics
        self._after_sync = context.after_sync
        self._watch = watch
        self._clock = context.clock
        self._storage = context.storage
        self.subscription_store = SubscriptionStore(settings.limits.subscriptions, settings.workspaces)
        """The stored subscriptions."""
        self.sessions = SessionTable(
            context.core,
            settings.limits,
            self.subscription_store,
            context.clock,
            context.storage,
            context.unix_offset_us,
        )
        """The sessions of this node's clients."""
        self._unconfirmed: TimerQueue[tuple[int, Key]] = TimerQueue()
        """Subscriptions that their clients must make again, because this node or a session's link was
        restarted."""
        self._ended_leases = EndedLeases(context.jurisdiction)
        self._announcements = SubscriptionAnnouncements(self._announce)
        self._subacks = SubAcks()
        self._forwarding_limits = ForwardingLimits()

    def handle_link_up(self, link: int, session: int, rights: int) -> None:
        """A session has a link. `rights`: the key of those of its client. Its subscriptions are those that
        these allow.

        The events of two workers may arrive out of order. So this may show that an earlier link of the
        session has ended, with the subscriptions of a session that is not persistent."""
        known = self.sessions.get(session)
        if known is not None and known.link != link and not known.is_persistent:
            self._forget(session)
        before = 0 if known is None else known.rights
        session_of_link = self.sessions.connect(link, session, rights)
        if rights != before:
            self._review(session_of_link)

    def handle_rights_changed(self, link: int, rights: int) -> None:
        """The client of a link has the rights with this key now: ends the subscriptions that they do not
        allow."""
        session = self.sessions.of_link(link)
        if session is not None and session.rights != rights:
            session.rights = rights
            self._review(session)

    def handle_session_claimed(self, event: SessionClaimedEvent) -> None:
        """A client wants to go on with a session whose client had other rights (§4.6)."""
        rights = self._client_rights.of(event.rights)
        if self._may_go_on(event.session, rights):
            self._core.allow_session(event.session, event.rights)
        else:
            self._diagnostics.count("sessions_not_resumed")
            self._core.refuse_session(event.session, event.source, event.rights)

    def _may_go_on(self, session: int, rights: Rights) -> bool:
        """The authority has named the session's client in its token, or it might have subscribed to all that
        the session has. A client id in a block that was appended proves nothing: anybody may append it."""
        known = self.sessions.get(session)
        if known is None:
            return not rights.is_empty
        if known.client and known.client == rights.named_client:
            return True
        subscriptions = list(self.subscription_store.of(session))
        is_much = len(subscriptions) > _MOST_REVIEWED
        return not is_much and all(_may_have(rights, subscription) for subscription in subscriptions)

    def _review(self, session: Session) -> None:
        """The rights of a session are others than those with which its subscriptions were made."""
        rights = self._client_rights.of(session.rights)
        if rights.is_unlimited:
            return
        subscriptions = list(self.subscription_store.of(session.id))
        if len(subscriptions) > _MOST_REVIEWED:
            self._end(session)  # Its client makes those again that it may have.
            return
        for subscription in subscriptions:
            if not _may_have(rights, subscription):
                self._deny(session, subscription)

    def _deny(self, session: Session, subscription: Subscription) -> None:
        """Ends a subscription that its client may not have, and informs the client."""
        self._remove(session.id, subscription.key)
        if session.link is not None:
            ack = self._ack(0, subscription.key, subscription.qos)
            ack.reason = Reason.REASON_NOT_AUTHORIZED
            self._send_after_replies(session.link, pack(ack), "subacks_not_sent")

    def handle_link_down(self, now: int, link: int, reason: str) -> None:
        """The core has ended the session, unless it is persistent, or its client begins another link
        (§3.6)."""
        before = self.sessions.of_link(link)
        goes_on = before is not None and reason == "restarted" and self.subscription_store.has_any(before.id)
        session = self.sessions.disconnect(now, link, goes_on=goes_on)
        if session is None:
            return
        if not session.is_offline:
            self._forget(session.id)
        elif session.is_unconfirmed and goes_on:
            for subscription in self.subscription_store.of(session.id):
                self._expect(now, subscription)

    def handle_overflow(self, session: int) -> None:
        """§7.8: the session's queue overflowed, and the core has ended the session. Informs its client, which
        may begin anew."""
        known = self.sessions.get(session)
        if known is None:
            return
        for subscription in self.subscription_store.of(session):
            if known.link is not None:
                ack = self._ack(0, subscription.key, subscription.qos)
                ack.reason = Reason.REASON_QUOTA_EXCEEDED
                self._core.send(known.link, pack(ack))
        self._end(known)

    def handle_leave(self, link: int, leave: pb.Leave) -> None:
        """§6.4: LEAVE of a client. Its session ends, or goes offline."""
        session = self.sessions.of_link(link)
        if session is not None and session.is_persistent and not leave.keep_session:
            self._end(session)
        self._core.close(link)

    def handle_timeout(self, now: int) -> None:
        """Ends the sessions that have expired, and the subscriptions that were not made again."""
        for session in self.sessions.expired(now):
            self._forget(session.id)
        for session_id, key in self._unconfirmed.due(now):
            self._remove(session_id, key)
            self.sessions.end_unconfirmed(session_id)
        self._announcements.handle_timeout(now)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return earliest(
            self.sessions.poll_timeout(), self._unconfirmed.next(), self._announcements.poll_timeout()
        )

    def handle_subscribe(self, requester: Requester, request: pb.Subscribe) -> None:
        """Handles SUBSCRIBE: discovery, if it comes from outside of a session or from a parent; else the
        subscription."""
        ack = self._ack(request.request, (request.group, request.filter), min(request.qos, MOST_QOS))
        ack.hops = requester.hops
        if not filter_is_valid(request.filter) or not group_is_valid(request.group):
            ack.reason = Reason.REASON_TOPIC_FILTER_INVALID
        elif request.qos > MOST_QOS or request.overflow > MOST_OVERFLOW:
            ack.reason = Reason.REASON_PROTOCOL_ERROR
        elif not _is_allowed(requester.rights, request):
            ack.reason = Reason.REASON_NOT_AUTHORIZED
        elif not self._jurisdiction.grants:
            ack.reason = Reason.REASON_NOT_SERVING
        else:
            self._answer_request(requester, request, ack)
            return
        requester.answer(self._core, ack)

    def handle_unsubscribe(self, link: int, request: pb.Unsubscribe) -> None:
        """Handles UNSUBSCRIBE (§6.3)."""
        session = self.sessions.of_link(link)
        key = request.group, request.filter
        ack = self._ack(request.request, key)
        if session is None or not self._remove(session.id, key):
            ack.reason = Reason.REASON_NO_SUBSCRIPTION_EXISTED
        self._send_after_replies(link, pack(ack), "unsubacks_not_sent")

    def restore(self, now: int, subscriptions: Iterable[Subscription]) -> None:
        """After a restart: makes the sessions that were connected and their subscriptions again, offline. So
        messages that are published before the clients are back are queued (§5.8)."""
        restored: dict[int, None] = {}
        for subscription in subscriptions:
            if self.sessions.restore(now, subscription.session):
                self._put(replace(subscription, interrupted=True, is_prepared=False))
                self._expect(now, subscription)
                restored[subscription.session] = None
        for session in restored:  # The core knows now which of them are members of shared groups.
            self._core.restore_queue(session)

    def restore_saved(
        self, now: int, saved: Iterable[SavedSession], subscriptions: Iterable[Subscription]
    ) -> list[Subscription]:
        """After a restart of a node with a store: makes persistent sessions and their subscriptions again,
        with the messages that wait for them. If the store is not whole, or new, the
        subscriptions are interrupted. Returns the subscriptions of sessions that have ended meanwhile."""
        restored = {session.session for session in saved if self.sessions.restore_saved(now, session)}
        ended = []
        for subscription in subscriptions:
            if subscription.session in restored:
                interrupted = subscription.interrupted or not self._has_restored_queues
                self._put(replace(subscription, interrupted=interrupted, is_prepared=False))
            else:
                ended.append(subscription)
        for session in restored:
            self._core.restore_queue(session)
        return ended

    def await_grants(self, now: int, claimed: Iterable[str]) -> None:
        """After a restart: keeps what waits for restored sessions until these subtrees are granted, as after
        a lease that ended."""
        for subtree in claimed:
            self._ended_leases.begin(now, subtree)
        self._ended_leases.prune(lambda subtree: not self._kept_touching(subtree))

    def prepare(self, subscription: Subscription) -> None:
        """Makes a subscription of a handover, and its session; its client is not informed yet. A restored
        subscription stays unconfirmed, because the handover may fail, and its client may have ended it."""
        known = self.subscription_store.get(subscription.session, subscription.key)
        interrupted = subscription.interrupted or (known is not None and known.interrupted)
        is_prepared = known is None or known.is_prepared
        self._restore(replace(subscription, interrupted=interrupted, is_prepared=is_prepared))

    def withdraw(self, session: int, key: Key) -> None:
        """Removes a prepared subscription, because it has ended or the handover failed. A subscription stays
        if it was here before, or if its client has made it here since."""
        known = self.subscription_store.get(session, key)
        if known is not None and known.is_prepared:
            self._remove(session, key)

    def install_state(self, subtree: str, subscriptions: Sequence[Subscription]) -> None:
        """Makes the subscriptions that were not prepared, and informs all clients that theirs are active
        here."""
        for subscription in subscriptions:
            known = self.subscription_store.get(subscription.session, subscription.key)
            if known is None:
                self._restore(subscription)
                continue
            self._unconfirmed.cancel((subscription.session, subscription.key))
            if known.is_prepared:
                self.subscription_store.add(replace(known, is_prepared=False))
        self._announcements.add(subscriptions, subtree)

    def add_misrouted(self, subscriptions: Sequence[Subscription]) -> None:
        """Makes the subscriptions that the parent took in before it knew of this node (§5.1). Their clients
        do not know this node's cuts either, so they are informed."""
        for subscription in subscriptions:
            if self.subscription_store.get(subscription.session, subscription.key) is None:
                self._restore(subscription)
            self._send_unsolicited_suback(subscription, self._cuts(subscription.filter))
            if self._jurisdiction.responsible_grant(subscription.filter) is None:
                self._remove(subscription.session, subscription.key)

    def connected_touching(self, subtree: str) -> Iterator[Subscription]:
        """The subscriptions that touch a subtree, of sessions that are not offline."""
        for subscription in self.subscription_store.touching(subtree):
            session = self.sessions.get(subscription.session)
            if session is not None and not session.is_offline:
                yield subscription

    def interrupt(self, subtree: str) -> None:
        """The owner of a subtree was lost, with what was queued there. Clients that were offline learn it
        when they come back (§6.4). Clients that are connected get the messages again from the publishers. But
        it is not known which clients are really connected, so the subscriptions of all persistent sessions
        are marked."""
        self.sessions.note_loss(subtree)
        self._interrupt(self._kept_touching(subtree))

    def subtree_moved(self, cut: Cut, *, with_sessions: bool = False) -> None:
        """A subtree went to a new owner, or was lost and goes to the parent: informs its subscribers, and
        removes the subscriptions that touch nothing here. `with_sessions`: it was handed over."""
        self._announcements.add(
            list(self.subscription_store.touching(cut[0])), SubtreeMovedAway(cut, with_sessions)
        )

    def end_lease(self, subtree: str, until: int | None, moving_subtrees: Sequence[str] = ()) -> None:
        """The lease of a subtree ended: now or, if this process was stopped, at `until`. The subscriptions of
        persistent sessions stay, and their clients are informed like all others."""
        self._ended_leases.prune(lambda ended_subtree: not self._kept_touching(ended_subtree))
        now = self._clock()
        self._ended_leases.begin(now if until is None else min(until, now), subtree)
        self.sweep(moving_subtrees, ended_subtree=subtree)

    def resume(self, subtree: str, received: ReceivedState) -> None:
        """This node is about to serve a subtree; called before the received state is taken in. If a
        subscription is here and was not handed over, it ended at the owner in between, with what was queued
        there (§6.4). If a client has begun its session anew at another owner since it was last heard of here,
        what is here ends (§5.4)."""
        if any(record.lost for record in received.sessions.values()):
            self.sessions.note_loss(subtree)
        self._end_those_begun_anew(received)
        kept = self._kept_touching(subtree)
        # Another node has served the subtree, and may not have known of these.
        if subtree not in received.cuts:
            self._interrupt([s for s in kept if (s.session, *s.key) not in received.subscriptions])
        if self._ended_leases.latest(subtree) is None:
            return
        self._announcements.add(kept, subtree)
        self._ended_leases.end(subtree)

    def _end_those_begun_anew(self, received: ReceivedState) -> None:
        for id, begun_at in received.begun_at.items():
            session = self.sessions.get(id)
            if session is None or session.asked_at is None or session.asked_at >= begun_at:
                continue
            if session.begun_by != received.sessions[id].begun_by:
                self._end(session)

    def sweep(self, moving_subtrees: Sequence[str] = (), ended_subtree: str | None = None) -> None:
        """A grant ended without a handover: removes the subscriptions that touch nothing that is left.

        Their clients are informed, and look for the new owner, because the node that takes the subtree back
        does not have these subscriptions. Besides, this node may have been granted a larger subtree around
        it, with cuts of which the clients have not heard. `moving_subtrees`: the subtrees that are being
        handed over; what touches them stays. `ended_subtree`: the subtree of the grant, if its lease has
        ended.
        """
        for subscription in list(self.subscription_store):
            if self._is_unconfirmed(subscription):
                continue
            is_moving = any(filter_touches(subscription.filter, subtree) for subtree in moving_subtrees)
            if is_moving or self._jurisdiction.responsible_grant(subscription.filter) is not None:
                continue
            is_kept = self._is_kept(subscription)
            if not is_kept:
                self._remove(subscription.session, subscription.key)
            if not is_kept or (
                ended_subtree is not None and filter_touches(subscription.filter, ended_subtree)
            ):
                self._send_unsolicited_suback(subscription, self._cuts(subscription.filter))

    def _announce(self, subscription: Subscription, move: Move) -> None:
        is_known = self.subscription_store.get(subscription.session, subscription.key) is not None
        is_responsible = self._jurisdiction.responsible_grant(subscription.filter) is not None
        subtree = move if isinstance(move, str) else move.cut[0]
        is_here = isinstance(self._jurisdiction.lookup(subtree), Grant)
        if isinstance(move, str):
            if is_known and is_responsible:
                self._send_unsolicited_suback(subscription, [], [subtree] if is_here else [])
        elif not is_here:
            others: list[Cut] = []
            if not is_responsible and not self._is_unconfirmed(subscription):
                if not self._is_kept(subscription):
                    self._remove(subscription.session, subscription.key)
                elif subtree in self._ended_leases:
                    return  # Its client was informed when the lease ended.
                # This node will not inform it of cuts that are still moving to their owners.
                others = [cut for cut in self._cuts(subscription.filter) if cut[0] != subtree]
            self._send_unsolicited_suback(subscription, [move.cut, *others])
            if move.with_sessions:
                self.sessions.end_empty(subscription.session)

    def _answer_request(self, requester: Requester, request: pb.Subscribe, ack: pb.SubAck) -> None:
        ack.responsible = self._jurisdiction.responsible_grant(ack.filter) is not None
        ack.token = self._core.token_for(requester.address)
        if requester.session_link is not None:
            self._answer_within(requester.session_link, requester.address, request, ack)
            return
        if request.mode == pb.MODE_RECURSIVE:
            self._forward(
                requester, request, self._jurisdiction.touched_cuts(ack.filter, requester.parent_link)
            )
        for packet in self._with_children(ack):
            requester.answer_packed(self._core, packet)

    def _answer_within(self, link: int, address: Address, request: pb.Subscribe, ack: pb.SubAck) -> None:
        session = self.sessions.of_link(link)
        if session is None:
            self._diagnostics.drop("unexpected_packet")
            return
        if ack.responsible:
            self._store(session, address, request, ack)
        else:
            ack.reason = Reason.REASON_NOT_RESPONSIBLE
        if not ack.active:
            self._confirm(link, ack)
            return
        # §7.6: before the answer. A message that is published after the answer must not arrive twice.
        has_replay = self._replay(session.id, request, is_new=not ack.resumed)
        # §6.2: the next run of this node waits for this subscriber only if it finds the subscription in its
        # file.
        if not self._after_sync.send_reply(link, partial(self._confirm, link, ack)):
            self._diagnostics.count("subacks_not_sent")
        if not has_replay:
            self._refuse(session.id, link, request)

    def _confirm(self, link: int, ack: pb.SubAck) -> None:
        """Sends SUBACK within a session."""
        for packet in self._with_children(ack):
            self._core.send(link, packet)

    def _replay(self, session: int, request: pb.Subscribe, *, is_new: bool) -> bool:
        """Begins to send the retained messages, if they are wanted. False: too many replays wait already."""
        # §6.5: a group gets no retained messages.
        if request.group or not _wants_retained(request.retain_handling, is_new):
            return True
        return self._core.send_retained(session, request.filter, request.qos, request.listener)

    def _refuse(self, session: int, link: int, request: pb.Subscribe) -> None:
        """§7.6: there is no room for the retained messages. Ends the subscription, and informs its client."""
        key = request.group, request.filter
        self._remove(session, key)
        ack = self._ack(0, key, request.qos)
        ack.reason = Reason.REASON_QUOTA_EXCEEDED
        self._send_after_replies(link, pack(ack), "subacks_not_sent")

    def _store(self, session: Session, address: Address, request: pb.Subscribe, ack: pb.SubAck) -> None:
        key = request.group, request.filter
        if request.clean_start or request.cleaned:
            session = self._begin_anew(session, request)
        if self._jurisdiction.is_moving(request.filter):
            ack.reason = Reason.REASON_HANDOVER
            return
        before = self.subscription_store.get(session.id, key)
        ack.resumed = before is not None and not before.interrupted
        has_room = self.subscription_store.has_room(session.id, key)
        if not has_room or not self.sessions.renew(session, request):
            ack.reason, ack.resumed = Reason.REASON_QUOTA_EXCEEDED, False
            return
        self._unconfirmed.cancel((session.id, key))
        self._add(
            Subscription(
                session.id,
                address,
                request.filter,
                request.qos,
                request.no_local,
                request.retain_as_published,
                request.client,
                request.group,
                request.overflow,
                rights=session.rights,
            )
        )
        ack.active = True

    def _begin_anew(self, session: Session, request: pb.Subscribe) -> Session:
        """§6.4: a clean start ends what earlier runs left, and nothing of this run, which a handover may have
        brought. Returns the session as it is then."""
        run = 0 if session.link is None else self._core.will_publisher(session.link)
        if run and session.begun_by == run:
            return session
        if request.clean_start and self.subscription_store.has_any(session.id):
            session = self._end(session)
        self.sessions.begin_anew(session, run)
        return session

    def _forward(self, requester: Requester, request: pb.Subscribe, children: Sequence[Delegation]) -> None:
        origin = requester.forwarded_origin()
        if origin is None:
            self._diagnostics.drop("too_many_hops")
            return
        links = _links(children)
        # A request that a parent forwarded was counted by the node that received it first.
        if requester.parent_link is None and not self._forwarding_limits.try_consume(
            self._clock(), requester.address, len(links)
        ):
            self._diagnostics.count("subscribes_not_passed_down")
            return
        forwarded_request = pb.Subscribe()
        forwarded_request.CopyFrom(request)
        forwarded_request.origin.CopyFrom(origin)
        packet = pack(forwarded_request)
        for link in links:
            self._core.send(link, packet)

    def _is_unconfirmed(self, subscription: Subscription) -> bool:
        """§5.8: after a restart such a subscription is for subtrees that this node is still to be granted."""
        return (subscription.session, subscription.key) in self._unconfirmed

    def _is_kept(self, subscription: Subscription) -> bool:
        """§5.6: whether its session may have messages queued of a subtree whose lease has ended."""
        session = self.sessions.get(subscription.session)
        is_persistent = session is not None and session.is_persistent
        return is_persistent and self._ended_leases.touches(subscription.filter)

    def _kept_touching(self, subtree: str) -> list[Subscription]:
        """The subscriptions of persistent sessions that touch a subtree."""
        touching = ((s, self.sessions.get(s.session)) for s in self.subscription_store.touching(subtree))
        return [s for s, session in touching if session is not None and session.is_persistent]

    def _interrupt(self, subscriptions: Iterable[Subscription]) -> None:
        for subscription in subscriptions:
            interrupted = replace(subscription, interrupted=True)
            self.subscription_store.add(interrupted)
            self._storage.save_subscription(interrupted, False)

    def _expect(self, now: int, subscription: Subscription) -> None:
        self._unconfirmed.set((subscription.session, subscription.key), now + timers.IDLE_TIMEOUT)

    def _add(self, subscription: Subscription) -> None:
        self._watch(subscription, False)
        self._put(subscription)

    def _put(self, subscription: Subscription) -> None:
        self.subscription_store.add(subscription)
        self._core.subscribe(
            subscription.session,
            subscription.filter,
            subscription.qos,
            no_local=subscription.no_local,
            retain_as_published=subscription.retain_as_published,
            group=subscription.group,
            overflow=subscription.overflow,
        )

    def _restore(self, subscription: Subscription) -> None:
        client = subscription.address, subscription.rights
        session = self.sessions.adopt(subscription.session, *client)
        self.sessions.open(session)
        self._add(subscription)
        # The session may have a link here under other rights than at the owner before.
        if session.rights not in (0, subscription.rights):
            rights = self._client_rights.of(session.rights)
            if not _may_have(rights, subscription):
                self._deny(session, subscription)

    def _remove(self, session: int, key: Key) -> bool:
        removed = self.subscription_store.remove(session, key)
        self._unconfirmed.cancel((session, key))
        if removed is not None:
            group, filter = key
            self._core.unsubscribe(session, filter, group)
            self._watch(removed, True)
        return removed is not None

    def _end(self, session: Session) -> Session:
        """Ends a session, whose link stays. Returns the new session of that link."""
        self.sessions.end(session)
        self._forget(session.id)
        return self.sessions.get(session.id) or session

    def _forget(self, session: int) -> None:
        for subscription in self.subscription_store.remove_session(session):
            self._unconfirmed.cancel((session, subscription.key))
            self._watch(subscription, True)

    def _send_unsolicited_suback(
        self, subscription: Subscription, passed_to: list[Cut], came: Sequence[str] = ()
    ) -> None:
        """Sends an unsolicited SUBACK (§6.3). `came`: the subtrees that this node was handed, which may be
        parts of larger ones."""
        session = self.sessions.get(subscription.session)
        if session is None or session.link is None:
            return
        ack = self._ack(0, subscription.key, subscription.qos)
        ack.responsible = ack.active = self._jurisdiction.responsible_grant(subscription.filter) is not None
        ack.resumed = ack.active and not subscription.interrupted
        held = dict.fromkeys([*self._jurisdiction.served_subtrees(ack.filter), *came])
        for packet in self._subacks.of(ack, passed_to, list(held)):
            self._send_after_replies(session.link, packet, "subacks_not_sent")

    def _send_after_replies(self, link: int, packet: bytes, else_counted_as: str) -> None:
        if not self._after_sync.run_after_replies(link, partial(self._core.send, link, packet)):
            self._diagnostics.count(else_counted_as)

    def _cuts(self, filter: str) -> list[Cut]:
        return [delegation.as_cut() for delegation in self._jurisdiction.touched_cuts(filter)]

    def _with_children(self, ack: pb.SubAck) -> Iterator[bytes]:
        """SUBACK with the subtrees and cuts of this node, serialised, in as many parts as necessary."""
        children = self._jurisdiction.touched_cuts(ack.filter)
        return self._subacks.of_children(ack, children, self._jurisdiction.served_subtrees(ack.filter))

    def _ack(self, request: int, key: Key, qos: int = 0) -> pb.SubAck:
        group, filter = key
        return pb.SubAck(
            request=request,
            node=self._settings.name,
            address=address_of(self._settings.address),
            filter=filter,
            group=group,
            qos=pb.Qos.Name(qos),
        )


def _wants_retained(handling: int, is_new: bool) -> bool:
    return handling == pb.RETAIN_HANDLING_SEND or (handling == pb.RETAIN_HANDLING_SEND_IF_NEW and is_new)


def _links(children: Iterable[Delegation]) -> list[int]:
    """The links of these children, each once, however many subtrees the child holds."""
    return list(dict.fromkeys(d.link for d in children if d.link is not None))


def _may_have(rights: Rights, subscription: Subscription) -> bool:
    is_shared = bool(subscription.group)
    return rights.may_read(subscription.filter, is_shared) and rights.may_be(subscription.client)


def _is_allowed(rights: Rights, request: pb.Subscribe) -> bool:
    return rights.may_read(request.filter, bool(request.group)) and rights.may_be(request.client)
