"""A node's control: events of the native core in, changes of its tables and packets out (§5, §6).

`Node` only routes: whence a packet came decides who reads it. What is decided is decided in `uplink` (this
node as a child), `delegating` (as a parent), `answering` (PUBCONNECT) and `subscribing` (SUBSCRIBE), over
one `Jurisdiction`. Whatever makes no sense where it arrives is dropped and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from hbroker._native import ControlEvent, LinkDownEvent, LinkUpEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings, format_address
from hbroker.protocol.admission import STATUS_ROOT
from hbroker.protocol.answering import Answering
from hbroker.protocol.core import Event, NodeCore
from hbroker.protocol.delegating import Delegating
from hbroker.protocol.gathering import Gathering
from hbroker.protocol.inquiry import Inquiry
from hbroker.protocol.jurisdiction import Delegation, Grant, Jurisdiction
from hbroker.protocol.notices import Ledger, Notice
from hbroker.protocol.packets import address_from, body_of
from hbroker.protocol.status import StatusTopic, split_drops
from hbroker.protocol.subscribers import Subscribers, Subscription
from hbroker.protocol.subscribing import Subscribing
from hbroker.protocol.uplink import Uplink, UplinkState

__all__ = ["Node"]

_Request: TypeAlias = pb.Join | pb.Subscribe | pb.PubConnect


class Node:
    """The control of one node. `now` is in microseconds on one monotonic clock.

    `incarnation` is that of the core's `Config`. `unix_offset_us`: what to add to `now` for microseconds
    since the Unix epoch, for the epochs of delegations (§5.1). `restored`: what an earlier run of this node
    had delegated, as `remember` was told last. `recalled`: the subscriptions that it held, as `note` was told
    of each that was made or (True) ended. `vitals`: what the process alone knows of itself, for the status.
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
        remember: Callable[[Sequence[Delegation]], None] = lambda cuts: None,
        recalled: Iterable[Subscription] = (),
        note: Callable[[Subscription, bool], None] = lambda subscription, ended: None,
        vitals: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self._settings = settings
        self._core = core
        self._restored = list(restored)
        self._unix_offset_us = unix_offset_us
        address = settings.address
        self._address = address
        self._note = note
        self._vitals = vitals
        self._ledger = Ledger()
        self._jurisdiction = Jurisdiction(core, remember, unix_offset_us)
        self._status = StatusTopic(settings.name, core)
        self._gathering = Gathering(self._jurisdiction, recalled, note)
        self._subscribing = Subscribing(
            settings, address, core, self._jurisdiction, self._ledger, self._subscription_changed
        )
        self._answering = Answering(settings.name, address, core, self._jurisdiction, self._ledger)
        self._delegating = Delegating(
            settings,
            address,
            core,
            self._jurisdiction,
            self._subscribing,
            self._gathering,
            self._ledger,
            self._epoch_at,
        )
        root = settings.root
        claims = () if root is None else (settings.subtree, f"{STATUS_ROOT}/{settings.name}")
        self._uplinks = [
            Uplink(
                settings,
                subtree,
                root or address,
                address,
                incarnation,
                core,
                self._jurisdiction,
                self._subscribing,
                self._gathering,
                self._ledger,
                random,
            )
            for subtree in claims
        ]

    # Change

    def start(self, now: int) -> None:
        """The root owns the hierarchy from here on; any other node begins to join."""
        self._gathering.start(now)
        if self._settings.is_root:
            self._gathering.handle_return("")
            # All of `$SYS/nodes` is reserved, also for nodes that are still to come.
            for subtree in ("", STATUS_ROOT):
                self._jurisdiction.hold(Grant(subtree, self._epoch_at(now), None, True, None))
        self._delegating.restore(now, self._restored)
        for uplink in self._uplinks:
            uplink.start(now)

    def handle_event(self, now: int, event: Event) -> None:
        """Leases that ended before this event are ended before it is read."""
        self.handle_timeout(now)
        match event:
            case ControlEvent():
                self._handle_packet(now, event)
            case LinkUpEvent() if event.inbound:
                self._subscribing.handle_link_up(event.link, event.session)
            case LinkDownEvent():
                self._subscribing.handle_link_down(event.link)
                self._delegating.handle_link_down(event.link)
                for uplink in self._uplinks:
                    uplink.handle_link_down(now, event.link)
            case _:
                pass

    def handle_timeout(self, now: int) -> None:
        deadline = self.poll_timeout()
        if deadline is None or now < deadline:
            return
        for uplink in self._uplinks:
            uplink.handle_timeout(now)
        self._delegating.handle_timeout(now)
        self._gathering.handle_timeout(now)
        if self._status.is_due(now):
            self._publish_status(now)

    def leave(self, now: int) -> None:
        """Hands back what this node owns. `has_stopped` once it is done, or `uplink.LEAVE_WAIT` is over."""
        self._delegating.leave()
        for uplink in self._uplinks:
            uplink.leave(now)

    # Read

    def poll_timeout(self) -> int | None:
        """When to call `handle_timeout` next."""
        deadlines = [u.poll_timeout() for u in self._uplinks]
        deadlines += [m.poll_timeout() for m in (self._delegating, self._gathering, self._status)]
        return min((d for d in deadlines if d is not None), default=None)

    def poll_notice(self) -> Notice | None:
        return self._ledger.poll()

    @property
    def is_serving(self) -> bool:
        """Whether this node owns everything that it was told to."""
        return all(u.state in (UplinkState.SERVING, UplinkState.AWAIT_RENEWAL) for u in self._uplinks)

    @property
    def has_stopped(self) -> bool:
        """A sub-broker that left, or was turned away for good, holds nothing and asks for nothing."""
        return bool(self._uplinks) and all(u.state is UplinkState.STOPPED for u in self._uplinks)

    @property
    def jurisdiction(self) -> Jurisdiction:
        return self._jurisdiction

    @property
    def subscribers(self) -> Subscribers:
        return self._subscribing.subscribers

    def status(self, now: int) -> dict[str, object]:
        """This node's line of `hbroker tree --json`, and its counters."""
        drops, counters = split_drops(Counter(self._core.counters()) + self._ledger.counters)
        own = self._jurisdiction.grant_of(self._settings.subtree)
        return {
            "name": self._settings.name,
            "subtree": self._settings.subtree,
            "parent": self._uplinks[0].parent if self._uplinks else None,
            "address": format_address(self._address),
            "epoch": 0 if own is None else own.epoch,
            "serving": self.is_serving,
            "children": sorted(d.subtree for d in self._jurisdiction.delegations),
            "subscriptions": len(self._subscribing.subscribers),
            "sessions": self._subscribing.sessions,
            "publishers": counters.get("publishers", 0),
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
        match body:
            case pb.Join() | pb.Subscribe() | pb.PubConnect():
                self._handle_request(now, event, body)
            case pb.Challenge() if event.link is None:
                for uplink in self._uplinks:
                    uplink.handle_challenge(now, event.source, body)
            case pb.JoinAck():
                answered = [u for u in self._uplinks if u.handle_joinack(now, event.link, body)]
                self._expect(bool(answered))
            case pb.Transfer() if event.link is not None:
                self._handle_transfer(event.link, body)
            case pb.Unsubscribe() if event.link is not None:
                self._subscribing.handle_unsubscribe(event.link, body)
            case pb.Leave() if event.link is not None and body.subtree:
                self._delegating.handle_leave(event.link, body)
            case pb.Leave() if event.link is not None and not self._is_parent(event.link):
                self._core.close(event.link)
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
                if inquiry.session_link is not None and self._status.concerns(body.filter):
                    self._publish_status(now)
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

    def _handle_transfer(self, link: int, transfer: pb.Transfer) -> None:
        for uplink in self._uplinks:
            if uplink.subtree == transfer.subtree and uplink.link == link:
                self._expect(uplink.handle_transfer(link, transfer))
                return
        self._delegating.handle_transfer(link, transfer)

    def _is_parent(self, link: int) -> bool:
        return any(u.link == link for u in self._uplinks)

    def _expect(self, expected: bool) -> None:
        if not expected:
            self._ledger.drop("unexpected_packet")

    # Shared

    def _subscription_changed(self, subscription: Subscription, ended: bool) -> None:
        self._note(subscription, ended)
        if not ended:
            self._gathering.handle_subscribed(subscription)
        self._delegating.follow(subscription, ended)
        for uplink in self._uplinks:
            uplink.follow(subscription, ended)

    def _publish_status(self, now: int) -> None:
        owner = self._jurisdiction.lookup(self._status.topic)
        if isinstance(owner, Grant) and owner.serving:
            self._status.publish(now, self.status(now))

    def _epoch_at(self, now: int) -> int:
        return (now + self._unix_offset_us) // 1000
