"""What those who operate the network order a node to do (§5.7): leave, claim a subtree, hand one back.

An order comes outside of a session, from an address that has proved itself, and is repeated until it is
answered as done; the request id tells a repeat from a new order. Where the network has a join key, the order
must prove it over a nonce of this node's, which holds for one address and request and for two minutes; by
then the request is remembered longer than the nonce is good. So nobody can carry an order out a second time.

An order that changed the claims is told as done once the note of that is on the disk (§5.10): a run that
began without it would claim again what was handed back, or not own what was claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hbroker._native import topic_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.admin.client import order_credential
from hbroker.protocol.core import NodeCore
from hbroker.protocol.events import Diagnostics, Ordered
from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.protocol.hierarchy.child.requested_subtrees import RequestedSubtrees
from hbroker.protocol.hierarchy.child.uplink import Uplink, UplinkState
from hbroker.protocol.hierarchy.join_proofs import NONCE_PERIOD, Nonces, is_proof
from hbroker.protocol.hierarchy.jurisdiction import Grant, Jurisdiction
from hbroker.protocol.packets import Address, Reason, pack, reason_name
from hbroker.protocol.reasons import PASSING_REASONS
from hbroker.protocol.storage import AfterSync
from hbroker.subtree import is_within

__all__ = ["Orders"]

MEMORY: Final = 3 * NONCE_PERIOD
MOST_ORDERS: Final = 1_000
LINGER: Final = timers.SECOND
"""How long a node that left by order stays to say so: an answer may be lost."""
UNNOTED: Final = "it is carried out, but the node's disk does not take the note of that"
"""What is said of an order meanwhile."""

_NAMES: Final = {
    pb.ORDER_KIND_LEAVE: "leave",
    pb.ORDER_KIND_CLAIM: "claim",
    pb.ORDER_KIND_HAND_BACK: "hand back",
}


@dataclass(slots=True, eq=False)
class _Request:
    """One order under way, or its end. `requester`: where its end is told."""

    order: pb.Order
    requester: Address
    refusal: tuple[pb.Reason, str] | None = None
    is_carried_out: bool = False
    awaits_disk: bool = False
    """It is carried out, and `end` is called once the note of that is on the disk."""
    is_done: bool = False

    @property
    def has_ended(self) -> bool:
        return self.is_done or self.refusal is not None

    def end(self) -> None:
        """The note of it is on the disk."""
        self.is_done = True


class Orders:
    """All orders to one node. `leave(now)` has the node hand back all that it owns.

    `nonces`: of this run.
    """

    def __init__(
        self,
        settings: NodeSettings,
        core: NodeCore,
        jurisdiction: Jurisdiction,
        requested_subtrees: RequestedSubtrees,
        diagnostics: Diagnostics,
        leave: Callable[[int], None],
        nonces: Nonces,
        after_sync: AfterSync,
    ) -> None:
        self._settings = settings
        self._core = core
        self._jurisdiction = jurisdiction
        self._requested_subtrees = requested_subtrees
        self._diagnostics = diagnostics
        self._leave = leave
        self._nonces = nonces
        self._after_sync = after_sync
        self._known: ExpiringCache[int, _Request] = ExpiringCache(MOST_ORDERS)
        self._under_way: list[_Request] = []
        self.leave_requested = False
        """By an order."""
        self.is_leaving = False
        """By an order, or because its process is to end: it takes on nothing more."""
        self._has_left = False
        self._lingers_until: int | None = None

    # Change

    def handle_order(self, now: int, source: Address, order: pb.Order) -> None:
        """Takes an order, or the repeat of one, and answers how far it is."""
        if order.node != self._settings.name:
            text = f"this node is called {self._settings.name!r}"
            self._answer(source, order, Reason.REASON_NOT_RESPONSIBLE, text)
        elif not self._is_proved(now, source, order):
            nonce = self._nonces.current(now, "order", *source, order.request)
            text = "the order does not prove the network's join key: give --join-key-file"
            self._answer(source, order, Reason.REASON_NOT_AUTHORIZED, text, nonce)
        else:
            known = self._known.get(now, order.request)
            if known is None:
                known = _Request(order, source)
                self._known.put(order.request, known, now + MEMORY)
                self._begin(now, known)
            self._check(now, known)
            self._tell(known)

    def settle(self, now: int) -> None:
        """Tells of the orders that have ended, without being asked."""
        if self.leave_requested and self._requested_subtrees.have_ended and not self._has_left:
            self._has_left, self._lingers_until = True, now + LINGER
        for known in self._under_way:
            self._check(now, known)
            if known.has_ended:
                self._tell(known)
        self._under_way = [known for known in self._under_way if not known.has_ended]

    def handle_timeout(self, now: int) -> None:
        """Lingers no longer than is due."""
        if self._lingers_until is not None and now >= self._lingers_until:
            self._lingers_until = None
        self.settle(now)

    # Read

    def poll_timeout(self) -> int | None:
        """When this node has lingered long enough."""
        return self._lingers_until

    @property
    def lingers(self) -> bool:
        """Whether this node stays only to say that it left."""
        return self.leave_requested and (not self._has_left or self._lingers_until is not None)

    # Carrying out

    def _begin(self, now: int, known: _Request) -> None:
        known.refusal = self._refusal(known.order)
        if known.refusal:
            return
        order = known.order
        self._diagnostics.note(Ordered(_NAMES[order.kind], order.subtree))
        self._under_way.append(known)
        match order.kind:
            case pb.ORDER_KIND_LEAVE:
                self.leave_requested = True
                self._leave(now)
            case pb.ORDER_KIND_CLAIM if not self._owns(order.subtree):
                self._requested_subtrees.claim(now, order.subtree)
            case pb.ORDER_KIND_HAND_BACK:
                self._requested_subtrees.hand_back(now, order.subtree)

    def _refusal(self, order: pb.Order) -> tuple[pb.Reason, str] | None:
        """Why an order makes no sense here."""
        if order.kind not in _NAMES:
            return Reason.REASON_PROTOCOL_ERROR, f"there is no order {order.kind}"
        is_leave = order.kind == pb.ORDER_KIND_LEAVE
        if self._settings.is_root and (is_leave or not self._owns(order.subtree)):
            return (
                Reason.REASON_NOT_AUTHORIZED,
                "the root owns what nobody else holds, and gives nothing up",
            )
        if is_leave:
            return None
        if not topic_is_valid(order.subtree) or is_within(order.subtree, "$SYS"):
            return Reason.REASON_TOPIC_NAME_INVALID, f"{order.subtree!r} is no subtree that can be moved"
        if self.is_leaving:
            return Reason.REASON_NOT_SERVING, "this node is leaving"
        if len(self._under_way) >= MOST_ORDERS:
            return Reason.REASON_QUOTA_EXCEEDED, f"{MOST_ORDERS:,} orders are under way"
        if order.kind == pb.ORDER_KIND_HAND_BACK and self._requested_subtrees.find(order.subtree) is None:
            return Reason.REASON_NOT_RESPONSIBLE, f"this node was not granted {order.subtree!r}"
        return None

    def _check(self, now: int, known: _Request) -> None:
        """Sees how far an order is."""
        if not known.has_ended and not known.is_carried_out:
            self._check_effect(now, known)
        if known.is_carried_out and not known.awaits_disk:
            known.awaits_disk = self._after_sync.do(known.end)

    def _check_effect(self, now: int, known: _Request) -> None:
        order = known.order
        uplink = self._requested_subtrees.find(order.subtree)
        match order.kind:
            case pb.ORDER_KIND_LEAVE:  # It changes no claim.
                known.is_done = self._requested_subtrees.have_ended
            case pb.ORDER_KIND_HAND_BACK if uplink is None or uplink.state is UplinkState.STOPPED:
                known.is_carried_out = True
                self._requested_subtrees.forget(order.subtree)
            case pb.ORDER_KIND_CLAIM if self._owns(order.subtree):
                known.is_carried_out = True
            case pb.ORDER_KIND_CLAIM:
                self._check_requested(now, known, uplink)

    def _check_requested(self, now: int, known: _Request, uplink: Uplink | None) -> None:
        """A claim that is refused is given up: whoever ordered it decides what is next."""
        if uplink is None:
            known.refusal = Reason.REASON_NOT_SERVING, "the claim was given up"
        elif uplink.refused is not None and uplink.refused.reason not in PASSING_REASONS:
            known.refusal = uplink.refused.reason, _why(uplink.refused)
            uplink.leave(now)
            self._requested_subtrees.forget(known.order.subtree)

    def _owns(self, subtree: str) -> bool:
        decider = self._jurisdiction.lookup(subtree)
        return isinstance(decider, Grant) and decider.serving

    # Proof

    def _is_proved(self, now: int, source: Address, order: pb.Order) -> bool:
        key = self._settings.join_key
        if not key:
            return True
        is_fresh = self._nonces.is_good(now, order.nonce, "order", *source, order.request)
        return is_fresh and is_proof(order_credential(key, order), order.credential)

    # Answers

    def _tell(self, known: _Request) -> None:
        waits = known.is_carried_out and not known.is_done and self._after_sync.is_failing
        reason, text = known.refusal or (Reason.REASON_SUCCESS, UNNOTED if waits else "")
        self._answer(known.requester, known.order, reason, text, done=known.is_done)

    def _answer(
        self,
        address: Address,
        order: pb.Order,
        reason: pb.Reason,
        text: str = "",
        nonce: int = 0,
        *,
        done: bool = False,
    ) -> None:
        name = self._settings.name
        ack = pb.OrderAck(request=order.request, reason=reason, node=name, done=done, text=text, nonce=nonce)
        self._core.send_to(address, pack(ack))


def _why(refused: pb.JoinAck) -> str:
    holder = f", held by {refused.holder.node} ({refused.holder.subtree!r})" if refused.holder.node else ""
    return f"{refused.node} refused it: {reason_name(refused.reason)}{holder}"
