"""Orders of operators to a node (§5.7): leave, claim a subtree, hand one back, log at another level.

An order comes outside of a session, from a proved address, and is repeated until its answer says `done`. The
request id distinguishes a repeat from a new order. If the network has a join key, the order must prove it
over a nonce of this node. The nonce is good for one address and request, and for at most two minutes; the
node remembers the request id for longer. So nobody can have an order carried out a second time.

An order that changed the claims is answered as `done` once that note is on the disk (§5.10). Otherwise the
node's next run could claim a subtree again that was handed back, or not claim one that was ordered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.admin.client import order_credential
from hbroker.protocol.context import NodeContext
from hbroker.protocol.events import LogLevelOrdered, Ordered, OrderRefused, Suppression
from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.protocol.hierarchy.child.claim_states import ClaimState
from hbroker.protocol.hierarchy.child.subtree_claim import SubtreeClaim
from hbroker.protocol.hierarchy.child.subtree_claims import SubtreeClaims
from hbroker.protocol.hierarchy.join_proofs import NONCE_PERIOD, Nonces, is_proof
from hbroker.protocol.ownership.jurisdiction import Grant
from hbroker.protocol.packets import TEMPORARY_REASONS, Address, Reason, reason_name
from hbroker.protocol.requester import Requester
from hbroker.subtree import is_grantable, is_within

__all__ = ["LOG_LEVELS", "OrderHandler"]

MEMORY: Final = 3 * NONCE_PERIOD
"""Microseconds for which the node remembers an order, from its last copy on."""
MOST_ORDERS: Final = 1_000
"""The most orders that are under way. A further one is refused."""
_ORDERS: Final = "$SYS/#"
"""Who may write these topics may give orders, where tokens are required (§4.6)."""
MOST_REMEMBERED: Final = 10_000
"""The most orders that the node remembers. A further one is refused."""
LINGER: Final = timers.SECOND
"""Microseconds that a node that left because of an order stays, to answer repeats: an answer may be lost."""
UNNOTED: Final = "it is carried out, but the node's disk does not take the note of that"
"""The text of the answer while the disk fails."""

LOG_LEVELS: Final = {
    pb.ORDER_KIND_LOG_DEBUG: "debug",
    pb.ORDER_KIND_LOG_INFO: "info",
    pb.ORDER_KIND_LOG_WARNING: "warning",
    pb.ORDER_KIND_LOG_ERROR: "error",
}
_NAMES: Final = {
    pb.ORDER_KIND_LEAVE: "leave",
    pb.ORDER_KIND_CLAIM: "claim",
    pb.ORDER_KIND_HAND_BACK: "hand back",
    **{kind: f"log {level}" for kind, level in LOG_LEVELS.items()},
}


@dataclass(slots=True, eq=False)
class _Request:
    """One order, until it has ended. `requester`: to whom its end is sent."""

    order: pb.Order
    requester: Requester
    refusal: tuple[pb.Reason, str] | None = None
    is_carried_out: bool = False
    awaits_disk: bool = False
    """The order is carried out, and `end` is called once the note of that is on the disk."""
    is_done: bool = False

    @property
    def has_ended(self) -> bool:
        return self.is_done or self.refusal is not None

    def end(self) -> None:
        """The note is on the disk."""
        self.is_done = True


class OrderHandler:
    """All orders to one node. `leave(now)` makes the node hand back everything that it owns.

    `nonces`: those of this run.
    """

    def __init__(
        self,
        context: NodeContext,
        claims: SubtreeClaims,
        leave: Callable[[int], None],
        nonces: Nonces,
    ) -> None:
        self._context = context
        self._settings = context.settings
        self._claims = claims
        self._leave = leave
        self._nonces = nonces
        self._requests: ExpiringCache[int, _Request] = ExpiringCache(MOST_REMEMBERED)
        self._under_way: list[_Request] = []
        self._refusals = Suppression()
        self.leave_requested = False
        """Whether an order asked this node to leave."""
        self.is_leaving = False
        """Whether this node leaves, because of an order or because its process ends. It then takes no other
        orders."""
        self._has_left = False
        self._lingers_until: int | None = None

    # Change

    def handle_order(self, now: int, requester: Requester, order: pb.Order) -> None:
        """Handles an order, or the repeat of one, and answers it."""
        if order.node != self._settings.name:
            text = f"this node is called {self._settings.name!r}"
            self._answer(requester, order, Reason.REASON_NOT_RESPONSIBLE, text)
        elif not requester.rights.may_write(_ORDERS, False):
            text = f"the token of the client does not let it write {_ORDERS}"
            self._report_refusal(now, requester, order, text)
            self._answer(requester, order, Reason.REASON_NOT_AUTHORIZED, text)
        elif not self._is_proved(now, requester.address, order):
            nonce = self._nonces.current(now, "order", *requester.address, order.request)
            text = "the order does not prove the network's join key: give --join-key-file"
            if order.credential:  # Without one, the operator only asks for a nonce.
                self._report_refusal(now, requester, order, "its proof of the join key is wrong or too old")
            self._answer(requester, order, Reason.REASON_NOT_AUTHORIZED, text, nonce)
        else:
            request = self._requests.get(now, order.request)
            if request is None and not self._has_room(now, order):
                text = f"{MOST_REMEMBERED:,} orders came within three minutes: try again later"
                self._answer(requester, order, Reason.REASON_QUOTA_EXCEEDED, text)
                return
            is_new = request is None
            request = request or _Request(order, requester)
            # Anew with each copy: a copy can be replayed for as long as its nonce is good.
            self._requests.put(order.request, request, now + MEMORY)
            if is_new:
                self._begin(now, request)
            self._check(now, request)
            self._answer_order(request)

    def answer_ended(self, now: int) -> None:
        """Answers the orders that have ended, without waiting for a repeat."""
        if self.leave_requested and self._claims.have_ended and not self._has_left:
            self._has_left, self._lingers_until = True, now + LINGER
        for request in self._under_way:
            self._check(now, request)
            if request.has_ended:
                self._answer_order(request)
        self._under_way = [request for request in self._under_way if not request.has_ended]

    def handle_timeout(self, now: int) -> None:
        """Ends the lingering when it is over."""
        if self._lingers_until is not None and now >= self._lingers_until:
            self._lingers_until = None
        self.answer_ended(now)

    # Read

    def poll_timeout(self) -> int | None:
        """When the lingering ends, in microseconds; None: the node does not linger."""
        return self._lingers_until

    @property
    def lingers(self) -> bool:
        """Whether this node stays only to answer the order to leave."""
        return self.leave_requested and (not self._has_left or self._lingers_until is not None)

    # Carrying out

    def _has_room(self, now: int, order: pb.Order) -> bool:
        """Whether the order can be remembered without forgetting another one, which could then be carried out
        twice. LEAVE may take another's place: after it, the node carries out nothing else."""
        return order.kind == pb.ORDER_KIND_LEAVE or self._requests.has_room(now)

    def _begin(self, now: int, request: _Request) -> None:
        order, requester = request.order, request.requester
        request.refusal = self._refusal(order)
        if request.refusal:
            self._report_refusal(now, requester, order, request.refusal[1])
            return
        ordered = Ordered(_NAMES[order.kind], order.subtree, requester.address, _client_of(requester))
        self._context.diagnostics.add_event(ordered)
        self._under_way.append(request)
        match order.kind:
            case pb.ORDER_KIND_LEAVE:
                self.leave_requested = True
                self._leave(now)
            case pb.ORDER_KIND_CLAIM if not self._owns(order.subtree):
                self._claims.add(now, order.subtree)
            case pb.ORDER_KIND_HAND_BACK:
                self._claims.hand_back(now, order.subtree)
            case kind if kind in LOG_LEVELS:
                self._context.diagnostics.add_event(LogLevelOrdered(LOG_LEVELS[kind]))

    def _report_refusal(self, now: int, requester: Requester, order: pb.Order, why: str) -> None:
        suppressed = self._refusals.suppressed_before(now)
        if suppressed is not None:
            name = _NAMES.get(order.kind, str(order.kind))
            client = _client_of(requester)
            refused = OrderRefused(name, order.subtree, requester.address, client, why, suppressed)
            self._context.diagnostics.add_event(refused)

    def _refusal(self, order: pb.Order) -> tuple[pb.Reason, str] | None:
        """The reason and text of an order that this node cannot carry out; None: it can."""
        if order.kind not in _NAMES:
            return Reason.REASON_PROTOCOL_ERROR, f"there is no order {order.kind}"
        if order.kind in LOG_LEVELS:
            return None
        is_leave = order.kind == pb.ORDER_KIND_LEAVE
        if self._settings.is_root and (is_leave or not self._owns(order.subtree)):
            return (
                Reason.REASON_NOT_AUTHORIZED,
                "the root owns what nobody else holds, and gives nothing up",
            )
        if is_leave:
            return None
        if not is_grantable(order.subtree) or is_within(order.subtree, "$SYS"):
            return Reason.REASON_TOPIC_NAME_INVALID, f"{order.subtree!r} is no subtree that can be moved"
        if self.is_leaving:
            return Reason.REASON_NOT_SERVING, "this node is leaving"
        if len(self._under_way) >= MOST_ORDERS:
            return Reason.REASON_QUOTA_EXCEEDED, f"{MOST_ORDERS:,} orders are under way"
        if order.kind == pb.ORDER_KIND_HAND_BACK and self._claims.find(order.subtree) is None:
            return Reason.REASON_NOT_RESPONSIBLE, f"this node was not granted {order.subtree!r}"
        return None

    def _check(self, now: int, request: _Request) -> None:
        """Updates the progress of an order."""
        if not request.has_ended and not request.is_carried_out:
            self._check_effect(now, request)
        if request.is_carried_out and not request.awaits_disk:
            request.awaits_disk = self._context.after_sync.run_when_durable(request.end)

    def _check_effect(self, now: int, request: _Request) -> None:
        order = request.order
        claim = self._claims.find(order.subtree)
        match order.kind:
            case pb.ORDER_KIND_LEAVE:  # This changes no claim.
                request.is_done = self._claims.have_ended
            case pb.ORDER_KIND_HAND_BACK if claim is None or claim.state is ClaimState.STOPPED:
                request.is_carried_out = True
                self._claims.forget(order.subtree)
            case pb.ORDER_KIND_CLAIM if self._owns(order.subtree):
                request.is_carried_out = True
            case pb.ORDER_KIND_CLAIM:
                self._check_requested(now, request, claim)
            case kind if kind in LOG_LEVELS:
                request.is_done = True

    def _check_requested(self, now: int, request: _Request, claim: SubtreeClaim | None) -> None:
        """Gives up a claim that was refused: the operator decides what to do next."""
        if claim is None:
            request.refusal = Reason.REASON_NOT_SERVING, "the claim was given up"
        elif claim.last_refusal is not None and claim.last_refusal.reason not in TEMPORARY_REASONS:
            request.refusal = claim.last_refusal.reason, _why(claim.last_refusal)
            claim.leave(now)
            self._claims.forget(request.order.subtree)

    def _owns(self, subtree: str) -> bool:
        decider = self._context.jurisdiction.lookup(subtree)
        return isinstance(decider, Grant) and decider.serving

    # Proof

    def _is_proved(self, now: int, source: Address, order: pb.Order) -> bool:
        key = self._settings.join_key
        if not key:
            return True
        is_fresh = self._nonces.is_valid(now, order.nonce, "order", *source, order.request)
        return is_fresh and is_proof(order_credential(key, order), order.credential)

    # Answers

    def _answer_order(self, request: _Request) -> None:
        waits = request.is_carried_out and not request.is_done and self._context.after_sync.is_failing
        reason, text = request.refusal or (Reason.REASON_SUCCESS, UNNOTED if waits else "")
        self._answer(request.requester, request.order, reason, text, done=request.is_done)

    def _answer(
        self,
        requester: Requester,
        order: pb.Order,
        reason: pb.Reason,
        text: str = "",
        nonce: int = 0,
        *,
        done: bool = False,
    ) -> None:
        name = self._settings.name
        ack = pb.OrderAck(request=order.request, reason=reason, node=name, done=done, text=text, nonce=nonce)
        requester.answer(self._context.core, ack)


def _why(refused: pb.JoinAck) -> str:
    holder = f", held by {refused.holder.node} ({refused.holder.subtree!r})" if refused.holder.node else ""
    return f"{refused.node} refused it: {reason_name(refused.reason)}{holder}"


def _client_of(requester: Requester) -> str:
    """The client id that the requester's token names; empty: none."""
    return " and ".join(requester.rights.clients)
