"""A node's control: events of the native core in, changes of its tables and packets out (§5, §6).

`Node` only routes: whence a packet came decides who reads it. What is decided is decided in `uplink` (this
node as a child), `delegating` (as a parent), `answering` (PUBCONNECT) and `subscribing` (SUBSCRIBE), over
one `Jurisdiction`. Whatever makes no sense where it arrives is dropped and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Final, TypeAlias

from hbroker._native import ControlEvent, LinkDownEvent, LinkUpEvent, OverflowEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings, format_address
from hbroker.protocol import timers
from hbroker.protocol.admin.requests import Orders
from hbroker.protocol.core import Event, NodeCore
from hbroker.protocol.events import Ledger, Notice
from hbroker.protocol.handover.recovery import Gathering
from hbroker.protocol.hierarchy.channels import Channels
from hbroker.protocol.hierarchy.child.context import Means
from hbroker.protocol.hierarchy.child.requested_subtrees import Claims
from hbroker.protocol.hierarchy.join_proofs import Nonces
from hbroker.protocol.hierarchy.jurisdiction import Delegation, Grant, Jurisdiction
from hbroker.protocol.hierarchy.parent.admission import STATUS_ROOT
from hbroker.protocol.hierarchy.parent.delegations import Custody
from hbroker.protocol.hierarchy.parent.parent import Delegating
from hbroker.protocol.packets import Body, address_from, body_of
from hbroker.protocol.requester import Inquiry
from hbroker.protocol.resolution.responder import Answering
from hbroker.protocol.sessions.sessions import Sessions
from hbroker.protocol.sessions.takeover import Takeovers
from hbroker.protocol.sessions.wills import Wills
from hbroker.protocol.status import OwnAccount, accounts_of, split_drops
from hbroker.protocol.storage import AfterSync, Storage, Unstored
from hbroker.protocol.subscriptions.owner.store import Subscribers, Subscription
from hbroker.protocol.subscriptions.owner.subscriptions import Subscribing

__all__ = ["Node"]

_TOTALS: Final = (
    "accepted",
    "delivered",
    "expired",
    "queued_messages",
    "queued_bytes",
    "away_bytes",
    "early_bytes",
)
"""What became of the messages of all sessions that there were, what waits for those there are (§7.8), and
what is held of packets that came before their turn (§3.3)."""

_Request: TypeAlias = pb.Join | pb.Subscribe | pb.PubConnect


class Node:
    """The control of one node. `now` is in microseconds on one monotonic clock.

    `incarnation` is that of the core's `Config`. `unix_offset_us`: what to add to `now` for microseconds
    since the Unix epoch, for the epochs of delegations (§5.1). `restored`: what an earlier run of this node
    had delegated, as `remember` was told of each cut that was made or changed or (True) has ended; `claims`:
    the subtrees that it was to own, as `remember_claims` was told last (None: it was not); `recalled`: the
    subscriptions that it held, as `note` was told of each that was made or (True) ended; `away`: the sessions
    of these that had no link then, as `note_away` was told. `storage`: how much of all that is on the disk.
    `forgets_delegations`, `forgets_subscriptions`: there were more, which nobody knows any more (§5.9).
    `vitals`: what the process alone knows of itself, for the status.
    """

    def __init__(
        self,
        settings: NodeSettings,
        core: NodeCore,
        random: Random,
        *,
        incarnation: int,
        unix_offset_us: int,
        restored: Iterable[Delegation] = (),
        remember: Callable[[Delegation, bool], None] = lambda cut, ended: None,
        claims: Sequence[str] | None = None,
        remember_claims: Callable[[Sequence[str]], None] = lambda claims: None,
        recalled: Iterable[Subscription] = (),
        note: Callable[[Subscription, bool], None] = lambda subscription, ended: None,
        away: Iterable[int] = (),
        note_away: Callable[[int, bool], None] = lambda session, is_away: None,
        storage: Storage | None = None,
        forgets_delegations: bool = False,
        forgets_subscriptions: bool = False,
        vitals: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self._settings = settings
        self._ledger = Ledger()
        address = self._address = settings.address
        nonces = Nonces(random.randbytes(16))
        self._channels = Channels(core, settings.join_key, address, random, nonces, self._ledger)
        core = self._core = self._channels.over()
        self._restored = list(restored)
        self._unix_offset_us = unix_offset_us
        self._note = note
        self._vitals = vitals
        self._storage: Storage = storage or Unstored()
        self._after_sync = AfterSync(self._storage)
        self._forgets_delegations = forgets_delegations
        self._sure_at: int | None = None
        """When every lease that an earlier run may have granted is over."""
        self._now = 0
        jurisdiction = self._jurisdiction = Jurisdiction(core, remember, unix_offset_us)
        self._accounts = (
            OwnAccount(settings.name, "status", core, self.status, 0),
            OwnAccount(settings.name, "sessions", core, self._sessions_account, 1),
        )
        self._connected, self._away = _by_presence(recalled, set(away))
        self._note_away = note_away
        self._gathering = self._new_gathering(forgets_subscriptions)
        subscribed = (self._after_sync, self._subscription_changed, self._clock, note_away)
        self._subscribing = Subscribing(settings, address, core, jurisdiction, self._ledger, *subscribed)
        sessions = self._subscribing.sessions
        self._wills = Wills(
            core, jurisdiction, sessions, self._ledger, settings.limits.sessions, self._clock, unix_offset_us
        )
        self._takeovers = Takeovers(core)
        self._answering = Answering(settings.name, address, core, self._jurisdiction, self._ledger)
        keepers = (sessions, self._wills)
        parts = (core, jurisdiction, self._subscribing, self._gathering, self._ledger, self._after_sync)
        self._custody = Custody((settings.name, address, incarnation), *parts, keepers)
        decided = (self._jurisdiction, self._custody, self._ledger, self._epoch_at, self._after_sync)
        self._delegating = Delegating(settings, address, core, *decided, nonces)
        self._claims = Claims(self._means(incarnation, random), claims, remember_claims)
        self._orders = self._new_orders(nonces)

    def _new_gathering(self, forgets: bool) -> Gathering:
        return Gathering(
            self._jurisdiction,
            self._connected,
            self._note,
            self._clock,
            forgets=forgets,
            know=self._storage.know_subscriptions,
        )

    def _new_orders(self, nonces: Nonces) -> Orders:
        parts = (self._core, self._jurisdiction, self._claims, self._ledger)
        return Orders(self._settings, *parts, self.leave, nonces, self._after_sync)

    def _means(self, incarnation: int, random: Random) -> Means:
        return Means(
            self._settings,
            self._settings.root or self._address,
            self._address,
            incarnation,
            self._core,
            self._jurisdiction,
            self._subscribing,
            self._gathering,
            self._custody,
            self._delegating,
            self._ledger,
            self._after_sync,
            random,
            self._hang_up,
        )

    # Change

    def start(self, now: int) -> None:
        """The root owns the hierarchy from here on; any other node begins to join."""
        self._restore_subscribers(now)
        self._gathering.start(now)
        if self._forgets_delegations:
            self._jurisdiction.doubt()
            self._sure_at = now + timers.LEASE + 2 * timers.LEASE_DRIFT
        if self._settings.is_root:
            self._gathering.handle_return(now, "")
            # All of `$SYS/nodes` is reserved, also for nodes that are still to come.
            # Under no lower epoch than what an earlier run granted, though the clock was set back meanwhile.
            epoch = max([self._epoch_at(now), *(delegation.epoch + 1 for delegation in self._restored)])
            for subtree in ("", STATUS_ROOT):
                self._jurisdiction.hold(Grant(subtree, epoch, None, True, None))
        self._custody.restore(now, self._restored)
        self._jurisdiction.expect(self._claims.subtrees)
        self._claims.start(now)

    def handle_event(self, now: int, event: Event) -> None:
        """Leases that ended before an event are ended before it is read, once for all of one time."""
        if now > self._now:
            self.handle_timeout(now)
        match event:
            case ControlEvent():
                self._handle_packet(now, event)
            case LinkUpEvent() if event.inbound:
                self._subscribing.handle_link_up(event.link, event.session)
                self._wills.handle_link_up(event.session)
                self._takeovers.handle_link_up(event.session, event.address)
            case LinkDownEvent():
                self._channels.handle_link_down(event.link)
                if event.inbound:
                    self._handle_session_down(now, event)
                self._custody.handle_link_down(event.link)
                for uplink in self._claims:
                    uplink.handle_link_down(now, event.link, is_refused=event.reason == "refused")
            case OverflowEvent():
                self._subscribing.handle_overflow(event.session)
            case _:
                pass
        self._claims.settle(now)
        self._orders.settle(now)

    def handle_timeout(self, now: int) -> None:
        self._now = now
        deadline = self.poll_timeout()
        if deadline is None or now < deadline:
            return
        self._after_sync.handle_timeout()
        self._subscribing.handle_timeout(now)
        self._takeovers.handle_timeout(now)
        for uplink in self._claims:
            uplink.handle_timeout(now)
        self._wills.handle_timeout(now)  # A node that was stopped may serve their topics no more.
        self._custody.handle_timeout(now)
        self._orders.handle_timeout(now)
        self._gathering.handle_timeout(now)
        if self._sure_at is not None and now >= self._sure_at:
            self._sure_at = None
            self._jurisdiction.be_sure()
            self._storage.know_delegations()
        for account in self._accounts:
            if account.is_due(now) and self._serves(account.topic):
                account.publish(now)

    def leave(self, now: int) -> None:
        """Hands back what this node owns. `has_stopped` once it is done, or `uplink.LEAVE_WAIT` is over."""
        self._orders.is_leaving = True
        self._delegating.close("")
        for uplink in self._claims:
            uplink.leave(now)

    # Read

    def poll_timeout(self) -> int | None:
        """When to call `handle_timeout` next."""
        deadlines = [u.poll_timeout() for u in self._claims]
        parts = (
            self._after_sync,
            self._custody,
            self._orders,
            self._gathering,
            self._subscribing,
            self._wills,
            self._takeovers,
            *self._accounts,
        )
        deadlines += [part.poll_timeout() for part in parts]
        deadlines.append(self._sure_at)
        return min((d for d in deadlines if d is not None), default=None)

    def poll_notice(self) -> Notice | None:
        return self._ledger.poll()

    @property
    def is_serving(self) -> bool:
        """Whether this node owns everything that it was told to."""
        return self._claims.are_held and not self.is_in_doubt

    @property
    def is_in_doubt(self) -> bool:
        """Whether it waits, and serves nothing: it may have delegated what it does not know (§5.9)."""
        return self._jurisdiction.is_in_doubt

    @property
    def has_stopped(self) -> bool:
        """A sub-broker that left, or was turned away for good, holds nothing and asks for nothing.

        One that left by order stays a little longer, to say so.
        """
        return self._claims.have_ended and not self._orders.lingers

    @property
    def has_left(self) -> bool:
        """Whether it has handed back all that it owned, because it was ordered to leave (§5.7)."""
        return self._orders.told_to_leave and self._claims.have_ended

    @property
    def claims(self) -> Claims:
        return self._claims

    @property
    def custody(self) -> Custody:
        return self._custody

    @property
    def jurisdiction(self) -> Jurisdiction:
        return self._jurisdiction

    @property
    def subscribers(self) -> Subscribers:
        return self._subscribing.subscribers

    @property
    def subscribing(self) -> Subscribing:
        return self._subscribing

    @property
    def sessions(self) -> Sessions:
        return self._subscribing.sessions

    @property
    def wills(self) -> Wills:
        return self._wills

    def status(self, now: int) -> dict[str, object]:
        """This node's line of `hbroker tree --json`, and its counters."""
        drops, counters = split_drops(Counter(self._core.counters()) + self._ledger.counters)
        claims = self._claims
        own = None if claims.main is None else self._jurisdiction.lookup(claims.main)
        return {
            "name": self._settings.name,
            "subtree": claims.main,
            "subtrees": claims.subtrees,
            "parent": claims.parent,
            "address": format_address(self._address),
            "epoch": own.epoch if isinstance(own, Grant) else 0,
            "serving": self.is_serving,
            "children": sorted(d.subtree for d in self._jurisdiction.delegations),
            "subscriptions": len(self._subscribing.subscribers),
            "sessions": self._subscribing.sessions.connected,
            "publishers": counters.get("publishers", 0),
            "sessions_away": self._subscribing.sessions.away,
            "wills": len(self._wills),
            **{name: counters.get(name, 0) for name in _TOTALS},
            "messages_in": counters.get("messages_in", 0),
            "messages_out": counters.get("messages_out", 0),
            "bytes_in": counters.get("bytes_in", 0),
            "bytes_out": counters.get("bytes_out", 0),
            **self._vitals(),
            "drops": drops,
            "counters": counters,
            "at_us": now + self._unix_offset_us,
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
            self._ledger.drop("unauthenticated")
            if isinstance(body, pb.Join) and event.inbound:
                self._delegating.refuse(link, event.source, body)

    def _handle_body(self, now: int, event: ControlEvent, body: Body | None) -> None:
        match body:
            case pb.Join() | pb.Subscribe() | pb.PubConnect():
                self._handle_request(now, event, body)
            case pb.Order() if event.link is None:
                self._orders.handle_order(now, event.source, body)
            case pb.Challenge() if event.link is None:
                for uplink in self._claims:
                    uplink.handle_challenge(now, event.source, body)
            case pb.JoinAck():
                answered = [u for u in self._claims if u.handle_joinack(now, event.link, body)]
                self._expect(bool(answered))
            case pb.Transfer() if event.link is not None:
                self._handle_transfer(now, event.link, body)
            case pb.Unsubscribe() if event.link is not None:
                self._subscribing.handle_unsubscribe(event.link, body)
            case pb.Leave() if event.link is not None and body.subtree:
                self._custody.handle_leave(event.link, body)
            case pb.Leave() if event.link is not None and not self._is_parent(event.link):
                self._handle_client_leave(now, event.link, body)
            case pb.Will() if event.link is not None and not self._is_parent(event.link):
                self._wills.handle_will(now, event.link, body)
            case _:
                self._expect(False)

    def _handle_request(self, now: int, event: ControlEvent, body: _Request) -> None:
        inquiry = self._inquiry(event, body.origin if body.HasField("origin") else None)
        if inquiry is None:
            self._expect(False)
            return
        match body:
            case pb.PubConnect():
                self._answering.handle_pubconnect(inquiry, body)
            case pb.Join():
                self._delegating.handle_join(now, inquiry, body)
            case pb.Subscribe():
                self._refresh_accounts(now, inquiry, body.filter)
                self._subscribing.handle_subscribe(inquiry, body)

    def _inquiry(self, event: ControlEvent, origin: pb.Origin | None) -> Inquiry | None:
        """§4.3: an origin is believed of a parent alone, and a parent only passes requests down."""
        if event.link is None:
            return Inquiry(event.source)
        if not self._is_parent(event.link):
            return Inquiry(event.source, session_link=event.link)
        address = None if origin is None else address_from(origin.address)
        if origin is None or address is None:
            return None
        return Inquiry(address, origin.hops, parent_link=event.link)

    def _handle_transfer(self, now: int, link: int, transfer: pb.Transfer) -> None:
        for uplink in self._claims:
            if uplink.subtree == transfer.subtree and uplink.link == link:
                self._expect(uplink.handle_transfer(now, link, transfer))
                break
        else:
            self._custody.handle_transfer(now, link, transfer)
        self._claims.merge(now)

    def _hang_up(self, link: int) -> None:
        """No claim needs this link to a parent any more."""
        if not self._is_parent(link):
            self._core.close(link)

    def _handle_session_down(self, now: int, event: LinkDownEvent) -> None:
        self._subscribing.handle_link_down(now, event.link, event.reason)
        self._wills.handle_link_down(now, event.session, event.reason)
        if event.reason == "taken_over":
            self._takeovers.handle_link_down(now, event.session, event.address)

    def _handle_client_leave(self, now: int, link: int, leave: pb.Leave) -> None:
        session = self._subscribing.sessions.of_link(link)
        if session is not None:
            self._wills.handle_leave(now, session.id, leave.reason)
        self._subscribing.handle_leave(link, leave)

    def _is_parent(self, link: int) -> bool:
        return any(u.link == link for u in self._claims)

    def _expect(self, expected: bool) -> None:
        if not expected:
            self._ledger.drop("unexpected_packet")

    # Shared

    def _restore_subscribers(self, now: int) -> None:
        """§5.8: what waited for those who were away is lost, and they are to learn it when they come back."""
        self._subscribing.restore(now, self._connected)
        for subscription in self._away:
            self._note(subscription, True)
        for session in {subscription.session for subscription in self._away}:
            self._note_away(session, False)

    def _subscription_changed(self, subscription: Subscription, ended: bool) -> None:
        self._note(subscription, ended)
        if not ended:
            self._gathering.handle_subscribed(subscription)
        self._custody.follow(subscription, ended)
        for uplink in self._claims:
            uplink.follow(subscription, ended)

    def _clock(self) -> int:
        """When what is handled now came."""
        return self._now

    def _sessions_account(self, now: int) -> dict[str, object]:
        return {
            "name": self._settings.name,
            "sessions": accounts_of(self._core, self._subscribing.sessions),
            "at_us": now + self._unix_offset_us,
        }

    def _refresh_accounts(self, now: int, inquiry: Inquiry, filter: str) -> None:
        if inquiry.session_link is not None:
            for account in self._accounts:
                if account.concerns(filter) and self._serves(account.topic):
                    account.refresh(now)

    def _serves(self, topic: str) -> bool:
        owner = self._jurisdiction.lookup(topic)
        return isinstance(owner, Grant) and owner.serving

    def _epoch_at(self, now: int) -> int:
        return (now + self._unix_offset_us) // 1000


def _by_presence(
    recalled: Iterable[Subscription], away: set[int]
) -> tuple[list[Subscription], list[Subscription]]:
    """The subscriptions of those who were connected, and of those who were away."""
    connected: list[Subscription] = []
    absent: list[Subscription] = []
    for subscription in recalled:
        (absent if subscription.session in away else connected).append(subscription)
    return connected, absent
