"""A node's control: events of the native core in, changes of its tables and packets out (§5, §6).

`Node` only routes. The origin of a packet decides which part handles it: `SubtreeClaim` (this node as a
child), `JoinResponder` and `Delegations` (as a parent), `Responder` (PUBCONNECT), `OwnerSubscriptions`
(SUBSCRIBE), `SessionWills` and `OrderHandler`, all over one `Jurisdiction`. A packet that makes no sense
where it arrives is discarded and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final, TypeAlias

from hbroker._native import (
    ControlEvent,
    LinkDownEvent,
    LinkUpEvent,
    OverflowEvent,
    RightsChangedEvent,
    RightsRequestedEvent,
    SessionClaimedEvent,
)
from hbroker._proto import packet_pb2 as pb
from hbroker.addresses import format_address
from hbroker.config import NodeSettings
from hbroker.identity.revocation_list import RevocationAuthority
from hbroker.protocol import timers
from hbroker.protocol.admin.audit import MOST_BYTES, Audit, audit_topic
from hbroker.protocol.admin.requests import OrderHandler
from hbroker.protocol.context import Certificates, NodeContext
from hbroker.protocol.core import Event, NodeCore
from hbroker.protocol.events import Diagnostics, NodeEvent
from hbroker.protocol.handover.recovery import Recovery
from hbroker.protocol.hierarchy.channels import Channels
from hbroker.protocol.hierarchy.child.subtree_claim import ClaimContext
from hbroker.protocol.hierarchy.child.subtree_claims import SubtreeClaims
from hbroker.protocol.hierarchy.join_proofs import Nonces
from hbroker.protocol.hierarchy.parent.delegations import Delegations
from hbroker.protocol.hierarchy.parent.join_responder import JoinResponder
from hbroker.protocol.ownership.epoch_clock import EpochClock
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT, Grant, Jurisdiction
from hbroker.protocol.packets import Address, Body, address_from, body_of, pack
from hbroker.protocol.requester import ForwardingLimits, Requester
from hbroker.protocol.resolution.responder import Responder
from hbroker.protocol.revocations import Revocations
from hbroker.protocol.sessions.client_rights import ClientRights, VerifyToken
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.protocol.sessions.takeover import TakeoverNotices
from hbroker.protocol.status import NO_PROCESS, ProcessFacts, StatusTopic, session_counters, split_drops
from hbroker.protocol.storage import AfterSync, RestoredState, Storage
from hbroker.protocol.subscriptions.owner.subscriptions import OwnerSubscriptions
from hbroker.protocol.wills.session_wills import SessionWills

__all__ = ["Node"]

_TOTALS: Final = (
    "accepted",
    "delivered",
    "expired",
    "queued_messages",
    "queued_bytes",
    "offline_bytes",
    "out_of_order_bytes",
)
"""Counters of the core that `status` shows at its top level: sums over all sessions (§7.8), and the bytes of
packets that are out of order (§3.3)."""

STORE_POLL: Final = 5_000
"""Microseconds between looks at whether the core's store has what DONE waits for."""

_Request: TypeAlias = pb.Join | pb.Subscribe | pb.PubConnect


class Node:
    """The control of one node. `now` is in microseconds of one monotonic clock.

    - `incarnation`: that of the core's `Config`.
    - `unix_offset_us`: added to `now`, it gives microseconds since the Unix epoch, for epochs (§5.1).
    - `restored`: what an earlier run saved. `storage`: saves records for the next run.
    - `process`: what only the process knows, for the status.
    - `certificates`: as in `NodeContext`.
    - `verify_token`: verifies a client's token; None: no tokens are required.
    - `authorities`: whose lists of revoked tokens it believes; empty: no tokens are required.
    """

    _doubt_ends_at: int | None = None
    """When every lease that an earlier run may have granted has ended."""
    _now = 0

    def __init__(
        self,
        settings: NodeSettings,
        core: NodeCore,
        random: Random,
        *,
        incarnation: int,
        unix_offset_us: int,
        restored: RestoredState | None = None,
        storage: Storage | None = None,
        process: ProcessFacts = NO_PROCESS,
        certificates: Certificates | None = None,
        verify_token: VerifyToken | None = None,
        authorities: Sequence[RevocationAuthority] = (),
    ) -> None:
        self._settings, self._process = settings, process
        diagnostics = self._diagnostics = Diagnostics()
        nonces = Nonces(random.randbytes(16))
        self._channels = Channels(core, settings.join_key, settings.address, random, nonces, diagnostics)
        core = self._core = self._channels.authenticated_core()
        restored = self._restored = restored or RestoredState()
        storage = self._storage = storage or Storage()
        self._after_sync = AfterSync(storage, core.submit_stored, core.stored)
        self.jurisdiction = Jurisdiction(core, storage.save_delegation, unix_offset_us)
        revoked, on_revoked = restored.revoked, self._handle_revoked
        self.revocations = Revocations(core, storage, diagnostics, revoked, authorities, on_revoked)
        context = self._context = NodeContext(
            settings,
            core,
            self.jurisdiction,
            diagnostics,
            storage,
            self._after_sync,
            EpochClock(storage, unix_offset_us),
            random,
            self._clock,
            incarnation,
            unix_offset_us,
            self.revocations,
            has_restored_queues=settings.has_store and restored.had_store and not restored.has_lost_sessions,
            certificates=certificates,
        )
        self._status_topics = self._made_status_topics()
        self._connected_subscriptions, self._saved_subscriptions = _split_saved(restored, settings.has_store)
        has_lost = restored.has_lost_subscriptions
        self._recovery = Recovery(context, self._connected_subscriptions, has_lost_subscriptions=has_lost)
        client_rights = self._client_rights = ClientRights(context, verify_token)
        self.owner_subscriptions = OwnerSubscriptions(context, self._subscription_changed, client_rights)
        self.sessions = self.owner_subscriptions.sessions
        self.subscription_store = self.owner_subscriptions.subscription_store
        self.wills = SessionWills(context, self.sessions)
        self._takeover_notices = TakeoverNotices(core)
        self._responder = Responder(context)
        movable = (self.owner_subscriptions, self._recovery)
        self.delegations = Delegations(context, *movable, (self.sessions, self.wills))
        self._join_responder = JoinResponder(context, self.delegations, nonces)
        parts = (*movable, self.delegations, self._join_responder, self._close_parent_link)
        self.claims = SubtreeClaims(ClaimContext(context, *parts), restored.claims)
        self._orders = OrderHandler(context, self.claims, self.leave, nonces)
        self._audit, self._audit_limits = Audit(self._send_audit), ForwardingLimits()

    # Change

    def start(self, now: int) -> None:
        """The root begins to own the hierarchy; any other node begins to join."""
        self._restore_subscribers(now)
        self._recovery.start(now)
        if self._restored.has_lost_delegations:
            self.jurisdiction.begin_doubt()
            self._doubt_ends_at = now + timers.LEASE + 2 * timers.LEASE_DRIFT
        if self._settings.is_root:
            self._recovery.handle_return(now, "")
            # All of `$SYS/nodes` is reserved, also for nodes that join later. The epoch is above all that an
            # earlier run granted, even if the clock was set back since.
            clock = self._context.epoch_clock
            clock.begin(now, self._restored.epoch_limit)
            restored = (delegation.epoch + 1 for delegation in self._restored.delegations)
            epoch = max((clock.at(now), *restored))
            for subtree in ("", STATUS_ROOT):
                self.jurisdiction.set_grant(Grant(subtree, epoch, None, True, None))
        self.delegations.restore(now, self._restored.delegations)
        self.wills.restore(now, self._restored.wills)
        if self._settings.has_store and not self._settings.is_root:
            self.owner_subscriptions.await_grants(now, self.claims.subtrees)
        self.jurisdiction.expect(self.claims.subtrees)
        self.claims.start(now)

    def handle_event(self, now: int, event: Event) -> None:
        """Handles one event. First ends the leases that ended before it, once for all events of the same
        time."""
        if now > self._now:
            self.handle_timeout(now)
        match event:
            case ControlEvent():
                self._handle_packet(now, event)
            case RightsRequestedEvent():
                self._client_rights.handle_request(now, event)
            case SessionClaimedEvent():
                self.owner_subscriptions.handle_session_claimed(event)
            case RightsChangedEvent():
                self.owner_subscriptions.handle_rights_changed(event.link, event.rights)
                self.wills.review(now, event.session, self._client_rights.of(event.rights))
            case LinkUpEvent() if event.inbound:
                self.owner_subscriptions.handle_link_up(event.link, event.session, event.rights)
                self.wills.handle_link_up(event.session)
                self.wills.review(now, event.session, self._client_rights.of(event.rights))
                self._takeover_notices.handle_link_up(event.session, event.address)
            case LinkDownEvent():
                self._channels.handle_link_down(event.link)
                self.revocations.handle_link_down(event.link)
                if event.inbound:
                    self._handle_session_down(now, event)
                self.delegations.handle_link_down(event.link)
                for claim in self.claims:
                    claim.handle_link_down(now, event.link, is_refused=event.reason == "refused")
            case OverflowEvent():
                self.owner_subscriptions.handle_overflow(event.session)
            case _:
                pass
        self.claims.start_pending(now)
        self._orders.answer_ended(now)

    def handle_timeout(self, now: int) -> None:
        """Does everything that is due at `now`."""
        self._now = now
        deadline = self.poll_timeout()
        if deadline is None or now < deadline:
            return
        self._after_sync.handle_timeout()
        self.revocations.handle_timeout()
        self._client_rights.handle_timeout(now)
        self._context.epoch_clock.handle_timeout(now)
        self.owner_subscriptions.handle_timeout(now)
        self._takeover_notices.handle_timeout(now)
        for claim in self.claims:
            claim.handle_timeout(now)
        # After the claims: a node that was stopped may not serve their topics any more.
        self.wills.handle_timeout(now)
        self.delegations.handle_timeout(now)
        self._orders.handle_timeout(now)
        self._recovery.handle_timeout(now)
        self._audit.handle_timeout(now)
        if self._doubt_ends_at is not None and now >= self._doubt_ends_at:
            self._doubt_ends_at = None
            self.jurisdiction.end_doubt()
            self._storage.clear_lost_delegations()
        for status_topic in self._status_topics:
            if status_topic.is_due(now) and self._serves(status_topic.topic):
                status_topic.publish(now)

    def leave(self, now: int) -> None:
        """Hands back everything that this node owns. `has_stopped` follows once that is done, or once the
        parent has been silent for `subtree_claim.LEAVE_WAIT`."""
        self._orders.is_leaving = True
        self._join_responder.close("")
        for claim in self.claims:
            claim.leave(now)

    def audit(self, now: int, event: str, fields: Mapping[str, object]) -> None:
        """Publishes an event of this node below `$SYS/audit` (§5.12). `fields`: its whole record."""
        self._audit.add(now, event, fields)

    def review_tokens(self, now: int, authorities: Sequence[RevocationAuthority] = ()) -> None:
        """`verify_token` believes others than before, and so do the lists of revoked tokens: looks at the
        tokens of all clients again."""
        self.revocations.believe(authorities)
        self._client_rights.review(now)

    # Read

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due next, in microseconds; None: never."""
        parts = (
            self._after_sync,
            self.revocations,
            self._client_rights,
            self._context.epoch_clock,
            self.delegations,
            self._orders,
            self._recovery,
            self.owner_subscriptions,
            self.wills,
            self._takeover_notices,
            self._audit,
        )
        return timers.earliest(
            self._doubt_ends_at,
            self._now + STORE_POLL if self._after_sync.awaits_store else None,
            *(claim.poll_timeout() for claim in self.claims),
            *(part.poll_timeout() for part in parts),
            *(topic.poll_timeout() for topic in self._status_topics),
        )

    def poll_event(self) -> NodeEvent | None:
        """The next event for the process; None: there is none now."""
        return self._diagnostics.poll()

    @property
    def is_serving(self) -> bool:
        """Whether this node serves all subtrees that it claims."""
        return self.claims.are_held and not self.is_in_doubt

    @property
    def is_in_doubt(self) -> bool:
        """Whether this node serves nothing, because it may have delegated subtrees that it does not know
        (§5.9)."""
        return self.jurisdiction.is_in_doubt

    @property
    def has_stopped(self) -> bool:
        """Whether this node has left, or was refused for good: it holds nothing, and asks for nothing.

        A node that left because of an order stays a little longer, to answer repeats of the order.
        """
        return self.claims.have_ended and not self._orders.lingers

    @property
    def has_left(self) -> bool:
        """Whether it was ordered to leave, and has handed back everything (§5.7)."""
        return self._orders.leave_requested and self.claims.have_ended

    def status(self, now: int) -> dict[str, object]:
        """The content of this node's status topic, and its line of `hbroker tree --json`."""
        drops, counters = split_drops(Counter(self._core.counters()) + self._diagnostics.counters)
        claims = self.claims
        own = None if claims.main is None else self.jurisdiction.lookup(claims.main)
        return {
            "name": self._settings.name,
            "subtree": claims.main,
            "subtrees": claims.subtrees,
            "parent": claims.parent,
            "address": format_address(self._settings.address),
            "epoch": own.epoch if isinstance(own, Grant) else 0,
            "serving": self.is_serving,
            "children": sorted(d.subtree for d in self.jurisdiction.delegations),
            "subscriptions": len(self.subscription_store),
            "sessions": self.sessions.connected,
            "publishers": counters.get("publishers", 0),
            "sessions_offline": self.sessions.offline,
            "wills": len(self.wills),
            "revoked_tokens": len(self.revocations),
            "workspaces": self.subscription_store.workspace_usage(),
            **{name: counters.get(name, 0) for name in _TOTALS},
            "messages_in": counters.get("messages_in", 0),
            "messages_out": counters.get("messages_out", 0),
            "bytes_in": counters.get("bytes_in", 0),
            "bytes_out": counters.get("bytes_out", 0),
            **self._process.usage(),
            "drops": drops,
            "counters": counters,
            "at_us": now + self._context.unix_offset_us,
        }

    # Routing

    def _handle_packet(self, now: int, event: ControlEvent) -> None:
        body = body_of(event.packet)
        link = event.link
        if link is None or self._channels.admits(link, body):
            self._handle_body(now, event, body)
        elif isinstance(body, pb.Authenticated):
            packet = self._channels.open(link, body)
            if packet is not None:
                self._handle_body(now, event, body_of(packet))
        else:
            self._diagnostics.drop("unauthenticated")
            if isinstance(body, pb.Join) and event.inbound:
                self._join_responder.refuse(link, event.source, body)

    def _handle_body(self, now: int, event: ControlEvent, body: Body | None) -> None:
        match body:
            case pb.Join() | pb.Subscribe() | pb.PubConnect():
                self._handle_request(now, event, body)
            case pb.Order() if event.link is None:
                self._orders.handle_order(now, self._stranger(event), body)
            case pb.Challenge() if event.link is None:
                for claim in self.claims:
                    claim.handle_challenge(now, event.source, body)
            case pb.JoinAck():
                answered = [u for u in self.claims if u.handle_joinack(now, event.link, body)]
                self._expect(bool(answered))
            case pb.Revoked() if event.link is not None:
                is_parent = self._is_parent(event.link)
                self._expect(self.revocations.handle_revoked(event.link, body, is_parent=is_parent))
            case pb.Transfer() if event.link is not None:
                self._handle_transfer(now, event.link, body)
            case pb.Unsubscribe() if event.link is not None:
                self.owner_subscriptions.handle_unsubscribe(event.link, body)
            case pb.Leave() if event.link is not None and body.subtree:
                self.delegations.handle_leave(event.link, body)
            case pb.Leave() if event.link is not None and not self._is_parent(event.link):
                self._handle_client_leave(now, event.link, body)
            case pb.Audit() if event.link is not None:
                self._expect(self._take_audit(now, event.link, event.source, body))
            case pb.Will() if event.link is not None and not self._is_parent(event.link):
                self.wills.handle_will(now, event.link, body, self._client_rights.of(event.rights))
            case _:
                self._expect(False)

    def _handle_request(self, now: int, event: ControlEvent, body: _Request) -> None:
        requester = self._requester(event, body.origin if body.HasField("origin") else None)
        if requester is None:
            self._expect(False)
            return
        match body:
            case pb.PubConnect():
                self._responder.handle_pubconnect(requester, body)
            case pb.Join() if not requester.rights.is_unlimited:
                self._diagnostics.drop("not_authorized")  # It is a client's.
            case pb.Join():
                self._join_responder.handle_join(now, requester, body)
            case pb.Subscribe():
                if requester.rights.may_read(body.filter, False):
                    self._refresh_status(now, requester, body.filter)
                self.owner_subscriptions.handle_subscribe(requester, body)

    def _stranger(self, event: ControlEvent) -> Requester:
        """Who sent a request from outside of any session."""
        return Requester(event.source, rights=self._client_rights.of(event.rights), rights_key=event.rights)

    def _requester(self, event: ControlEvent, origin: pb.Origin | None) -> Requester | None:
        """§4.3: only a parent may name an origin, and a parent only forwards requests."""
        if event.link is None:
            return self._stranger(event)
        rights, key = self._client_rights.of(event.rights), event.rights
        if not self._is_parent(event.link):
            return Requester(event.source, session_link=event.link, rights=rights, rights_key=key)
        address = None if origin is None else address_from(origin.address)
        if origin is None or address is None:
            return None
        return Requester(address, origin.hops, parent_link=event.link, rights_key=origin.rights)

    def _handle_transfer(self, now: int, link: int, transfer: pb.Transfer) -> None:
        for claim in self.claims:
            if claim.subtree == transfer.subtree and claim.link == link:
                self._expect(claim.handle_transfer(now, link, transfer))
                break
        else:
            self.delegations.handle_transfer(now, link, transfer)
        self.claims.merge(now)

    def _close_parent_link(self, link: int) -> None:
        """Closes the link to a parent, unless another claim uses it."""
        if not self._is_parent(link):
            self._core.close(link)

    def _handle_session_down(self, now: int, event: LinkDownEvent) -> None:
        session = self.sessions.of_link(event.link)
        rights = 0 if session is None else session.rights
        self.owner_subscriptions.handle_link_down(now, event.link, event.reason)
        self.wills.handle_link_down(now, event.session, event.reason)
        if event.reason == "taken_over":
            self._takeover_notices.handle_link_down(now, event.session, event.address, rights)

    def _handle_client_leave(self, now: int, link: int, leave: pb.Leave) -> None:
        session = self.sessions.of_link(link)
        if session is not None:
            self.wills.handle_leave(now, session.id, leave.reason)
        self.owner_subscriptions.handle_leave(link, leave)

    def _send_audit(self, now: int, event: str, record: bytes) -> bool:
        """Sends a record of this node to the root; the root publishes it."""
        if self._settings.is_root:
            topic = audit_topic(self._settings.name, event)
            assert topic is not None, "it is one of this node's events"
            return self._serves(topic) and self._core.publish(topic, record, 1, False) is not None
        link = self.claims.root_link
        return link is not None and self._core.send(link, pack(pb.Audit(event=event, record=record)))

    def _take_audit(self, now: int, link: int, source: Address, audit: pb.Audit) -> bool:
        """Publishes a record of the node that holds its name over this link. False: it is none."""
        name = self.delegations.holder_of_name(link)
        topic = None if name is None else audit_topic(name, audit.event)
        if topic is None or not self._serves(topic) or len(audit.record) > MOST_BYTES:
            return False
        is_allowed = self._audit_limits.try_consume(now, source, 1)
        if not is_allowed or self._core.publish(topic, audit.record, 1, False) is None:
            self._diagnostics.count("audit_dropped")
        return True

    def _is_parent(self, link: int) -> bool:
        return any(u.link == link for u in self.claims)

    def _expect(self, expected: bool) -> None:
        if not expected:
            self._diagnostics.drop("unexpected_packet")

    # Shared

    def _restore_subscribers(self, now: int) -> None:
        """§5.8: a store has the queues of sessions. Without one, the queues of sessions that were offline are
        lost. Their clients learn it when they come back, because their subscriptions are gone."""
        self.owner_subscriptions.restore(now, self._connected_subscriptions)
        ended, saved = self._saved_subscriptions, self._restored.sessions
        if self._settings.has_store:
            ended = self.owner_subscriptions.restore_saved(now, saved.values(), ended)
        for subscription in ended:
            self._storage.save_subscription(subscription, True)
        for id in saved:
            session = self.sessions.get(id)
            if session is None or not session.is_saved:
                self._storage.end_session(id)

    def _subscription_changed(self, subscription: Subscription, ended: bool) -> None:
        self._storage.save_subscription(subscription, ended)
        if not ended:
            self._recovery.handle_subscribed(subscription)
        self.delegations.handle_subscription_changed(subscription, ended)
        for claim in self.claims:
            claim.handle_subscription_changed(subscription, ended)

    def _handle_revoked(self, blocks: Sequence[bytes]) -> None:
        self._client_rights.handle_revoked(blocks)

    def _clock(self) -> int:
        """The time of the event that is being handled."""
        return self._now

    def _made_status_topics(self) -> tuple[StatusTopic, ...]:
        name = self._settings.name
        return (
            StatusTopic(name, "status", self._core, self.status, 0),
            StatusTopic(name, "sessions", self._core, self._session_status, 1),
            StatusTopic(name, "topics", self._core, self._topic_status, 0),
        )

    def _session_status(self, now: int) -> dict[str, object]:
        return {
            "name": self._settings.name,
            "sessions": session_counters(self._core, self.sessions),
            "at_us": now + self._context.unix_offset_us,
        }

    def _topic_status(self, now: int) -> dict[str, object]:
        at_us = now + self._context.unix_offset_us
        return {"name": self._settings.name, **self._process.hottest_topics(), "at_us": at_us}

    def _refresh_status(self, now: int, requester: Requester, filter: str) -> None:
        if requester.session_link is not None:
            for status_topic in self._status_topics:
                if status_topic.concerns(filter) and self._serves(status_topic.topic):
                    status_topic.refresh(now)

    def _serves(self, topic: str) -> bool:
        owner = self.jurisdiction.lookup(topic)
        return isinstance(owner, Grant) and owner.serving


def _split_saved(restored: RestoredState, has_store: bool) -> tuple[list[Subscription], list[Subscription]]:
    """The subscriptions of sessions for which the node waits, because they were connected; and those of
    sessions for which it does not wait: with a store, all persistent ones; without, those that were
    offline."""
    waited_for: list[Subscription] = []
    saved: list[Subscription] = []
    for subscription in restored.subscriptions:
        session = restored.sessions.get(subscription.session)
        is_saved = session is not None and (has_store or session.offline_since is not None)
        (saved if is_saved else waited_for).append(subscription)
    return waited_for, saved
