"""A node's answer to PUBCONNECT: which node owns the topic (§5.2).

A client needs no right to the topic for this: the owner checks what it publishes, and where it subscribes
(§4.6). But a client without any right learns nothing.

The owner answers the requester directly. Any other node forwards the request to its child that holds the
topic or, in referral mode, names that child. The node stores nothing about a request.
"""

from __future__ import annotations

from hbroker._native import topic_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.context import NodeContext
from hbroker.protocol.ownership.jurisdiction import Delegation, Grant
from hbroker.protocol.packets import Reason, address_of, cut_of, pack
from hbroker.protocol.requester import Requester

__all__ = ["Responder"]


class Responder:
    """A node's part of §5.2 and §5.3."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._core = context.core
        self._jurisdiction = context.jurisdiction

    def handle_pubconnect(self, requester: Requester, request: pb.PubConnect) -> None:
        """Answers the request, or forwards it."""
        if not topic_is_valid(request.topic):
            self._fail(requester, request, Reason.REASON_TOPIC_NAME_INVALID)
            return
        if requester.rights.is_empty:
            self._fail(requester, request, Reason.REASON_NOT_AUTHORIZED)
            return
        decider = self._jurisdiction.lookup(request.topic)
        parent = requester.parent_link
        if parent is not None and not self._jurisdiction.is_granted_by(parent, request.topic):
            # The parent's table is newer or older than this node's. If this node forwarded the request, it
            # could go round.
            decider = None
        match decider:
            case Grant():
                # §5.4: also if the subtree is being handed over and not served now. The client waits for it
                # here.
                self._accept(requester, request, decider)
            case Delegation() if request.mode == pb.MODE_REFERRAL:
                self._refer(requester, request, decider)
            case Delegation():
                self._forward(requester, request, decider)
            case None if self._jurisdiction.grants and parent is None:
                self._fail(requester, request, Reason.REASON_NOT_RESPONSIBLE)
            case _:
                self._fail(requester, request, Reason.REASON_NOT_SERVING)

    def _accept(self, requester: Requester, request: pb.PubConnect, grant: Grant) -> None:
        answer = self._answer(requester, request)
        answer.zone.CopyFrom(self._jurisdiction.zone(request.topic, grant))
        answer.ttl_s = timers.ZONE_TTL // timers.SECOND
        answer.subscriptions = self._core.matching(request.topic)
        answer.token = self._core.token_for(requester.address)
        requester.answer(self._core, answer)

    def _refer(self, requester: Requester, request: pb.PubConnect, delegation: Delegation) -> None:
        referral = pb.Referral(
            request=request.request, node=self._context.settings.name, next=cut_of(delegation.as_cut())
        )
        grant = self._jurisdiction.enclosing_grant(delegation.subtree)
        if grant is not None:
            referral.zone.CopyFrom(self._jurisdiction.zone(request.topic, grant))
        requester.answer(self._core, referral)

    def _forward(self, requester: Requester, request: pb.PubConnect, delegation: Delegation) -> None:
        origin = requester.forwarded_origin()
        if origin is None:
            self._context.diagnostics.drop("too_many_hops")
            return
        forwarded_request = pb.PubConnect(request=request.request, topic=request.topic, origin=origin)
        if delegation.link is None or not self._core.send(delegation.link, pack(forwarded_request)):
            self._fail(requester, request, Reason.REASON_OWNER_UNREACHABLE)

    def _fail(self, requester: Requester, request: pb.PubConnect, reason: pb.Reason) -> None:
        answer = self._answer(requester, request)
        answer.reason = reason
        answer.ttl_s = timers.NEGATIVE_TTL // timers.SECOND
        requester.answer(self._core, answer)

    def _answer(self, requester: Requester, request: pb.PubConnect) -> pb.PubAccept:
        return pb.PubAccept(
            request=request.request,
            node=self._context.settings.name,
            address=address_of(self._context.settings.address),
            hops=requester.hops,
        )
