"""Subscriptions at a node: who is told of a filter, what is stored, what moves with a subtree (§6, §5.4).

Discovery stores nothing: each node says whether its own jurisdiction can hold a match, and passes the
request to each child that the filter touches. Only a SUBSCRIBE within a session, with a responsible node,
makes a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from hbroker._native import filter_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings
from hbroker.protocol.core import NodeCore
from hbroker.protocol.inquiry import Inquiry
from hbroker.protocol.jurisdiction import Delegation, Jurisdiction
from hbroker.protocol.notices import Ledger
from hbroker.protocol.packets import Address, Cut, Reason, address_of, cut_of, pack
from hbroker.protocol.parts import in_parts
from hbroker.protocol.subscribers import Subscribers, Subscription

__all__ = ["Subscribing"]

_MOST_QOS: Final = 2


class Subscribing:
    """A node's side of §6. `watch(subscription, ended)` hears of every change, for handovers under way."""

    def __init__(
        self,
        settings: NodeSettings,
        address: Address,
        core: NodeCore,
        jurisdiction: Jurisdiction,
        ledger: Ledger,
        watch: Callable[[Subscription, bool], None],
    ) -> None:
        self._name = settings.name
        self._address = address
        self._core = core
        self._jurisdiction = jurisdiction
        self._ledger = ledger
        self._watch = watch
        self._sessions: dict[int, int] = {}
        """Session ids by link."""
        self._links: dict[int, int] = {}
        """Links by session id."""
        self._subscribers = Subscribers(settings.limits.subscriptions)

    @property
    def subscribers(self) -> Subscribers:
        return self._subscribers

    @property
    def sessions(self) -> int:
        """Links that peers opened to this node."""
        return len(self._sessions)

    def handle_link_up(self, link: int, session: int) -> None:
        if self._links.get(session) != link:
            # Of two workers' news the later may come first: a link that the session had before is gone.
            self._forget(session)
        self._attach(link, session)

    def handle_link_down(self, link: int) -> None:
        """The core has ended the session itself."""
        session = self._sessions.pop(link, None)
        if session is not None and self._links.get(session) == link:
            del self._links[session]
            self._forget(session)

    def handle_subscribe(self, inquiry: Inquiry, request: pb.Subscribe) -> None:
        """Discovery, outside of a session or from the parent; within a client's session, the subscription."""
        ack = self._ack(request.request, request.filter, min(request.qos, _MOST_QOS))
        ack.hops = inquiry.hops
        if not filter_is_valid(request.filter):
            ack.reason = Reason.REASON_TOPIC_FILTER_INVALID
        elif request.qos > _MOST_QOS:
            ack.reason = Reason.REASON_PROTOCOL_ERROR
        elif not self._jurisdiction.grants:
            ack.reason = Reason.REASON_NOT_SERVING
        else:
            self._take(inquiry, request, ack)
            return
        inquiry.answer(self._core, ack)

    def handle_unsubscribe(self, link: int, request: pb.Unsubscribe) -> None:
        session = self._sessions.get(link)
        removed = session is not None and self._remove(session, request.filter)
        ack = self._ack(request.request, request.filter)
        if not removed:
            ack.reason = Reason.REASON_NO_SUBSCRIPTION_EXISTED
        self._core.send(link, pack(ack))

    def take_over(self, subscriptions: Iterable[Subscription]) -> None:
        """Opens the sessions that were handed over, and tells each that its subscription is active here."""
        for subscription in subscriptions:
            link = self._core.adopt(subscription.session, subscription.address)
            self._attach(link, subscription.session)
            self._add(subscription)
            self._tell(subscription, [])

    def moved(self, cut: Cut) -> None:
        """A subtree has gone to a new owner: tells its subscribers, and drops what touches nothing here."""
        for session, subscription in list(self._subscribers.touching(cut[0])):
            if self._jurisdiction.responsible(subscription.filter) is None:
                self._remove(session, subscription.filter)
            self._tell(subscription, [cut])

    def sweep(self) -> None:
        """A grant is gone without a handover: what touches nothing that is left is dropped.

        Its client is told, and looks for the new owner: whoever takes the subtree back has none of these.
        """
        for session, subscription in list(self._subscribers):
            if self._jurisdiction.responsible(subscription.filter) is None:
                self._remove(session, subscription.filter)
                self._tell(subscription, [])

    def _take(self, inquiry: Inquiry, request: pb.Subscribe, ack: pb.SubAck) -> None:
        ack.responsible = self._jurisdiction.responsible(ack.filter) is not None
        ack.token = self._core.token_for(inquiry.origin)
        children = self._jurisdiction.children(ack.filter, inquiry.parent_link)
        cuts = [cut_of(d.as_cut()) for d in children]
        if inquiry.session_link is not None:
            self._store(inquiry.session_link, inquiry.origin, request, ack, cuts)
            return
        if request.mode == pb.MODE_RECURSIVE:
            self._pass_down(inquiry, request, children)
        for part in in_parts(ack, cuts):
            inquiry.answer(self._core, part)

    def _store(
        self, link: int, address: Address, request: pb.Subscribe, ack: pb.SubAck, cuts: list[pb.Cut]
    ) -> None:
        session = self._sessions.get(link)
        if session is None:
            self._ledger.drop("unexpected_packet")
            return
        if not ack.responsible:
            ack.reason = Reason.REASON_NOT_RESPONSIBLE
        elif not self._subscribers.has_room(session, request.filter):
            ack.reason = Reason.REASON_QUOTA_EXCEEDED
        else:
            is_new = self._add(
                Subscription(
                    session,
                    address,
                    request.filter,
                    request.qos,
                    request.no_local,
                    request.retain_as_published,
                    request.client,
                ),
            )
            ack.active = True
        for part in in_parts(ack, cuts):
            self._core.send(link, pack(part))
        if ack.active and _wants_retained(request.retain_handling, is_new):
            self._core.send_retained(session, request.filter, request.qos)

    def _pass_down(self, inquiry: Inquiry, request: pb.Subscribe, children: list[Delegation]) -> None:
        origin = inquiry.onward()
        if origin is None:
            self._ledger.drop("too_many_hops")
            return
        onward = pb.Subscribe()
        onward.CopyFrom(request)
        onward.origin.CopyFrom(origin)
        packet = pack(onward)
        for link in _links(children):
            self._core.send(link, packet)

    def _attach(self, link: int, session: int) -> None:
        self._sessions[link] = session
        self._links[session] = link

    def _forget(self, session: int) -> None:
        for subscription in self._subscribers.remove_session(session):
            self._watch(subscription, True)

    def _add(self, subscription: Subscription) -> bool:
        self._subscribers.add(subscription)
        self._watch(subscription, False)
        self._core.open_session(subscription.session, persistent=False, queue_messages=0, queue_bytes=0)
        return self._core.subscribe(
            subscription.session,
            subscription.filter,
            subscription.qos,
            no_local=subscription.no_local,
            retain_as_published=subscription.retain_as_published,
        )

    def _remove(self, session: int, filter: str) -> bool:
        removed = self._subscribers.remove(session, filter)
        if removed is not None:
            self._core.unsubscribe(session, filter)
            self._watch(removed, True)
        return removed is not None

    def _tell(self, subscription: Subscription, passed_to: list[Cut]) -> None:
        ack = self._ack(0, subscription.filter, subscription.qos)
        ack.responsible = ack.active = self._jurisdiction.responsible(subscription.filter) is not None
        ack.passed_to.extend(map(cut_of, passed_to))
        link = self._links.get(subscription.session)
        if link is not None:
            self._core.send(link, pack(ack))

    def _ack(self, request: int, filter: str, qos: int = 0) -> pb.SubAck:
        return pb.SubAck(
            request=request,
            node=self._name,
            address=address_of(self._address),
            filter=filter,
            qos=pb.Qos.Name(qos),
        )


def _wants_retained(handling: int, is_new: bool) -> bool:
    return handling == pb.RETAIN_HANDLING_SEND or (handling == pb.RETAIN_HANDLING_SEND_IF_NEW and is_new)


def _links(children: Iterable[Delegation]) -> list[int]:
    """Each child once, however many subtrees it holds."""
    return list(dict.fromkeys(d.link for d in children if d.link is not None))
