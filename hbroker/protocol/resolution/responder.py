"""Who owns this topic? A node's answer to PUBCONNECT (§5.2).

The owner answers whoever asked, directly. Another node passes the question down to the child that holds the
topic, or, in referral mode, names that child. Nothing is remembered of a question.
"""

from __future__ import annotations

from hbroker._native import topic_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.core import NodeCore
from hbroker.protocol.events import Diagnostics
from hbroker.protocol.hierarchy.jurisdiction import Delegation, Grant, Jurisdiction
from hbroker.protocol.packets import Address, Reason, address_of, cut_of, pack
from hbroker.protocol.requester import Requester

__all__ = ["Responder"]


class Responder:
    """A node's side of §5.2 and §5.3."""

    def __init__(
        self,
        name: str,
        address: Address,
        core: NodeCore,
        jurisdiction: Jurisdiction,
        diagnostics: Diagnostics,
    ) -> None:
        self._name = name
        self._address = address
        self._core = core
        self._jurisdiction = jurisdiction
        self._diagnostics = diagnostics

    def handle_pubconnect(self, requester: Requester, request: pb.PubConnect) -> None:
        """Answers, or passes the question down."""
        if not topic_is_valid(request.topic):
            self._fail(requester, request, Reason.REASON_TOPIC_NAME_INVALID)
            return
        decider = self._jurisdiction.lookup(request.topic)
        parent = requester.parent_link
        if parent is not None and not self._jurisdiction.holds_from(parent, request.topic):
            decider = (
                None  # The parent's table is ahead of this node's or behind it: going on could go round.
            )
        match decider:
            case Grant():
                # §5.4: one that is being handed over is not served just now. Who asks waits for it here.
                self._accept(requester, request, decider)
            case Delegation() if request.mode == pb.MODE_REFERRAL:
                self._refer(requester, request, decider)
            case Delegation():
                self._pass_down(requester, request, decider)
            case None if self._jurisdiction.grants and parent is None:
                self._fail(requester, request, Reason.REASON_NOT_RESPONSIBLE)
            case _:
                self._fail(requester, request, Reason.REASON_NOT_SERVING)

    def _accept(self, requester: Requester, request: pb.PubConnect, grant: Grant) -> None:
        answer = self._answer(requester, request)
        answer.zone.CopyFrom(self._jurisdiction.zone(request.topic, grant))
        answer.ttl_s = timers.ZONE_TTL // timers.SECOND
        answer.subscriptions = self._core.matching(request.topic)
        answer.token = self._core.token_for(requester.origin)
        requester.answer(self._core, answer)

    def _refer(self, requester: Requester, request: pb.PubConnect, delegation: Delegation) -> None:
        referral = pb.Referral(request=request.request, node=self._name, next=cut_of(delegation.as_cut()))
        grant = self._jurisdiction.enclosing(delegation.subtree)
        if grant is not None:
            referral.zone.CopyFrom(self._jurisdiction.zone(request.topic, grant))
        requester.answer(self._core, referral)

    def _pass_down(self, requester: Requester, request: pb.PubConnect, delegation: Delegation) -> None:
        origin = requester.onward()
        if origin is None:
            self._diagnostics.drop("too_many_hops")
            return
        onward = pb.PubConnect(request=request.request, topic=request.topic, origin=origin)
        if delegation.link is None or not self._core.send(delegation.link, pack(onward)):
            self._fail(requester, request, Reason.REASON_OWNER_UNREACHABLE)

    def _fail(self, requester: Requester, request: pb.PubConnect, reason: pb.Reason) -> None:
        answer = self._answer(requester, request)
        answer.reason = reason
        answer.ttl_s = timers.NEGATIVE_TTL // timers.SECOND
        requester.answer(self._core, answer)

    def _answer(self, requester: Requester, request: pb.PubConnect) -> pb.PubAccept:
        return pb.PubAccept(
            request=request.request,
            node=self._name,
            address=address_of(self._address),
            hops=requester.hops,
        )
