"""The nodes that a client's subscriptions touch (§6): discovers, confirms and recovers them.

Two kinds of answers arrive here. Outside of a session, each node that the filter touches answers whether it
is responsible, and to which nodes it forwarded the SUBSCRIBE. Within sessions, the responsible nodes confirm.

- If a node stays silent, the client asks it directly.
- If a session is lost, the client makes the subscription again, once with the same node, and then by a new
  discovery, because the subtree may have moved (§6.3).
- If an owner gets or loses a subtree by a handover, it sends an unsolicited SUBACK (§5.4).

If another client behind the same address has heard of the one node that serves the filter (`caches`),
the client makes the subscription with that node at once, and the node's answer takes the place of the
discovery. If that fails, the client begins at the root.

Within a session a node gets one SUBSCRIBE for each listener that still waits for the subscription, so that
each listener gets the retained messages for itself (§7.6). If no listener waits, the SUBSCRIBE is in the name
of the only listener, or in the name of all. The packets of a session are handled in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.client_context import ClientContext
from hbroker.protocol.packets import TEMPORARY_REASONS, Address, Reason, cut_from, pack
from hbroker.protocol.resolution.caches import HINT_TIMEOUT, CachedOwner
from hbroker.protocol.resolution.requests import (
    TOKEN_LIFETIME,
    Request,
    Requests,
    keep_token,
    reachable,
)
from hbroker.protocol.state_machine import StateMachine
from hbroker.protocol.subscriptions.client.subscription import (
    OWNER,
    ClientSubscription,
    OwnerEvent,
    OwnerState,
    SubackAnswerParts,
    SubscriptionOwner,
)
from hbroker.protocol.timers import SECOND, TimerQueue, earliest, retry_after

__all__ = ["SubscribeRequests", "SubscriptionOwners"]

_DIRECT_TRIES: Final = 4
_SUBSCRIBE_TIMEOUT: Final = 5 * SECOND
_MOST_OWNERS: Final = 10_000
SHORTER: Final = 16
"""The pause after a link whose owner has said that it is there and does not know the session is so many times
shorter. The jitter keeps its many clients apart."""


class SubscribeRequests:
    """The SUBSCRIBEs to the responsible nodes of all subscriptions, within their sessions."""

    __slots__ = ("_cleaned", "_context", "_owners")

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._owners: dict[int, SubscriptionOwner] = {}
        """By request: the node that must answer it."""
        self._cleaned: set[Address] = set()
        """§6.4: the owners that have answered a clean start."""

    def send_subscribe(self, owner: SubscriptionOwner, link: int) -> bool:
        """Makes or renews the subscription over the link to this node. False: the link is gone."""
        return all([self._send(owner, link, listener) for listener in _askers(owner)])

    def has_askers(self, owner: SubscriptionOwner) -> bool:
        """Whether a listener waits for which this node was not asked yet."""
        return bool(_unasked(owner))

    def find(self, request: int) -> SubscriptionOwner | None:
        """The node that must answer this request, or None."""
        return self._owners.get(request)

    def answered(self, owner: SubscriptionOwner, request: int) -> bool:
        """The node has the subscription. Returns whether it has answered all requests."""
        del self._owners[request]
        owner.answered_listeners = {*owner.answered_listeners, owner.pending.pop(request)}
        self.began(owner)
        return not owner.pending

    def began(self, owner: SubscriptionOwner) -> None:
        """§6.4: everything that the node has now is of this run of the client."""
        if self._context.session_options.clean_start:
            self._cleaned.add(owner.address)

    def forget(self, owner: SubscriptionOwner) -> None:
        """Forgets the requests to this node."""
        for request in owner.pending:
            del self._owners[request]
        owner.pending.clear()

    def _send(self, owner: SubscriptionOwner, link: int, listener: int) -> bool:
        request = self._context.random.getrandbits(64) or 1
        owner.pending[request] = listener
        self._owners[request] = owner
        body = owner.subscription.packet(self._context.session_options, listener)
        body.request = request
        if self._context.session_options.clean_start:
            body.cleaned = owner.address in self._cleaned
            body.clean_start = not body.cleaned
        return self._context.core.send(link, pack(body))


def _askers(owner: SubscriptionOwner) -> list[int]:
    listeners = owner.subscription.listeners
    return _unasked(owner) or (list(listeners) if len(listeners) == 1 else [0])


def _unasked(owner: SubscriptionOwner) -> list[int]:
    subscription = owner.subscription
    waiting = subscription.pending_listeners.difference(owner.answered_listeners, owner.pending.values())
    return sorted(
        each
        for each in waiting
        if subscription.listeners[each].retain_handling != pb.RETAIN_HANDLING_DO_NOT_SEND
    )


class SubscriptionOwners:
    """The owners of all subscriptions of one client. `on_change`: called after an event that may make a
    subscription complete or incomplete. `on_refused`: called with the reason for which a node refuses a
    subscription."""

    __slots__ = (
        "_by_link",
        "_context",
        "_discovery_requests",
        "_on_change",
        "_on_refused",
        "_owner_cache",
        "_pauses",
        "_subscribe_requests",
        "_tokens",
    )

    def __init__(
        self,
        context: ClientContext,
        on_change: Callable[[ClientSubscription], None],
        on_refused: Callable[[int, ClientSubscription, int], None],
    ) -> None:
        self._context = context
        self._tokens = context.caches.tokens
        self._owner_cache = context.caches.owner_cache
        self._on_change = on_change
        self._on_refused = on_refused
        self._discovery_requests: Requests[SubscriptionOwner] = Requests(
            context.core, context.random, self._tokens
        )
        self._by_link: dict[int, dict[SubscriptionOwner, None]] = {}
        self._subscribe_requests = SubscribeRequests(context)
        self._pauses: TimerQueue[SubscriptionOwner] = TimerQueue()

    # In: the client

    def begin(self, now: int, subscription: ClientSubscription) -> None:
        """Begins a new subscription."""
        hint = self._owner_cache.sole_owner(now, subscription.filter)
        if hint is None:
            self._discover(now, subscription)
        else:
            self._begin_at(now, subscription, hint)

    def renew(self, now: int, subscription: ClientSubscription) -> None:
        """The options of a subscription changed: sends SUBSCRIBE to the nodes that have it."""
        for owner in subscription.all_owners:
            if owner.state_machine.accepts(OwnerEvent.RENEW):
                self._renew(now, owner)

    def release(self, owner: SubscriptionOwner) -> None:
        """Awaits nothing more from this node, and forgets the link to it."""
        self._close_discovery_request(owner)
        self._pauses.cancel(owner)
        self._subscribe_requests.forget(owner)
        if owner.link is not None:
            there = self._by_link[owner.link]
            del there[owner]
            if not there:
                del self._by_link[owner.link]
            owner.link = None

    # In: the network

    def handle_challenge(self, now: int, source: Address, challenge: pb.Challenge) -> None:
        """Handles CHALLENGE (§4.1)."""
        self._discovery_requests.handle_challenge(now, source, challenge)

    def handle_answer(self, now: int, source: Address, suback: pb.SubAck) -> None:
        """§6.1: handles a SUBACK outside of a session: whether the node is responsible, and which nodes it
        named."""
        discovery_request = self._discovery_requests.find(suback.request)
        if discovery_request is None or not suback.node:
            return
        pending = discovery_request.owner
        subscription = pending.subscription
        is_direct = pending is not subscription.root_owner
        self._add_named(now, subscription, suback.passed_to, ask=is_direct)
        if suback.reason != Reason.REASON_SUCCESS:
            self._on_refused(now, subscription, suback.reason)
            return
        owner = self._owner(now, subscription, suback.node, reachable(suback.address, source))
        self._learn(now, owner, suback, is_root=not is_direct and source == discovery_request.address)
        if not owner.parts.add_part(suback):
            self._on_change(subscription)
            return
        if owner.link is None and not self._accepts_answer(now, owner, suback):
            self._on_change(subscription)
            return
        if not is_direct and (source == discovery_request.address or suback.hops == 0):
            pending.state_machine.handle(OwnerEvent.NOT_RESPONSIBLE)
            self._discovery_requests.stop_repeating(discovery_request)
        elif is_direct and pending.node != suback.node:  # Another node has this address now.
            pending.state_machine.handle(OwnerEvent.NOT_RESPONSIBLE)
            self.release(pending)
            self._retry_if_unaccounted(now, pending)
        self._apply_answer(now, owner, suback.responsible)
        self._on_change(subscription)

    def handle_session_suback(self, now: int, link: int, suback: pb.SubAck) -> bool:
        """§6.2: handles an answer within a session. False: no open request matches it."""
        owner = self._subscribe_requests.find(suback.request)
        if owner is None or owner.link != link:
            return False
        self._handle_session_suback(now, link, owner, suback)
        return True

    def handle_owner_change(
        self, now: int, subscription: ClientSubscription, link: int, source: Address, suback: pb.SubAck
    ) -> None:
        """§5.4: handles an unsolicited SUBACK, by which an owner gets or loses topics of the filter."""
        before = subscription.by_node.get(suback.node)
        is_awaited = subscription.is_discovering if before is None else before.is_awaited
        # What it had delegated is known, and each change since, as long as the session has had this one link.
        knows_cuts = before is not None and before.state is OwnerState.ACTIVE and before.link == link
        has_new_link = before is not None and before.link not in (None, link)
        owner = self._owner(now, subscription, suback.node, reachable(suback.address, source))
        self._learn(now, owner, suback)
        is_whole = owner.session_parts.add_part(suback)
        if is_whole:
            owner.amend_answer(owner.session_parts.answer)
        self._add_named(now, subscription, suback.passed_to, ask=False, moved=True, is_announced=knows_cuts)
        if not is_whole:
            return
        if suback.active and owner.pending and owner.link == link:
            return  # Its answer to the open requests follows.
        if suback.active and is_awaited:  # §6.2: its cuts are not known yet.
            owner.state_machine.handle(OwnerEvent.RESPONSIBLE)
            self._subscribe(now, owner)
        elif suback.active and owner.state is OwnerState.BACKING_OFF:  # Nor what it was handed since.
            owner.state_machine.handle(OwnerEvent.RESUME)
            self._subscribe(now, owner)
        elif suback.active and (has_new_link or owner.withholds_cuts):  # Nor what else it has delegated.
            self._renew(now, owner)
        elif suback.active:
            self.release(owner)
            self._attach(owner, link)
            self._subscribe_requests.began(owner)
            self._activate(now, owner)
        elif not owner.session_parts.answer.held or owner.knows_cuts:
            self._not_responsible(now, link, owner, suback)
        elif owner.is_awaited:
            self._ask_directly(now, owner)
        self._on_change(subscription)

    def handle_link_down(self, now: int, link: int, *, is_refused: bool, is_reset: bool) -> None:
        """§6.3: makes every subscription of that session again. `is_refused`, `is_reset`: as in
        `ClientSubscriptions.handle_link_down`."""
        for owner in list(self._by_link.get(link, ())):
            if is_refused:
                owner.subscription.reason = Reason.REASON_QUOTA_EXCEEDED
            self._owner_cache.forget(owner.address)
            self._pause(now, owner, OwnerEvent.LINK_DOWN, is_reset=is_reset)
            self._on_change(owner.subscription)

    def handle_timeout(self, now: int) -> None:
        """Asks silent nodes again, and makes lost subscriptions again."""
        for discovery_request in self._discovery_requests.unanswered(now):
            self._unanswered(now, discovery_request.owner, discovery_request)
        for owner in self._pauses.due(now):
            self._pause_over(now, owner)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return earliest(self._discovery_requests.poll_timeout(), self._pauses.next())

    # Discovery

    def _discover(self, now: int, subscription: ClientSubscription) -> None:
        for owner in subscription.restart():
            self.release(owner)
        subscription.root_owner = SubscriptionOwner(
            subscription, "", self._context.root, StateMachine(OWNER, OwnerState.ASKED)
        )
        self._send_discovery(now, subscription.root_owner, pb.MODE_RECURSIVE)

    def _begin_at(self, now: int, subscription: ClientSubscription, hint: CachedOwner) -> None:
        """Begins with the node that seems to serve all topics of the filter: its answer within the session
        says what it holds."""
        owner = subscription.add_named(hint.node, hint.address)
        owner.add_cut((hint.subtree, 0))
        self._apply_answer(now, owner, responsible=True)
        if owner.state is OwnerState.SUBSCRIBING:
            self._pauses.set(owner, now + HINT_TIMEOUT)

    def _learn(self, now: int, owner: SubscriptionOwner, suback: pb.SubAck, *, is_root: bool = False) -> None:
        """Takes token, subtrees and cuts of an answer into the caches, for other clients at this address."""
        keep_token(self._tokens, now, owner.address, suback.token, TOKEN_LIFETIME)
        self._owner_cache.learn(
            now, suback.node, owner.address, suback.held, suback.passed_to, is_root=is_root
        )

    def _send_discovery(self, now: int, owner: SubscriptionOwner, mode: pb.Mode) -> None:
        subscription = owner.subscription
        body = subscription.packet(self._context.session_options)
        body.mode = mode
        self._close_discovery_request(owner)
        owner.discovery_request = self._discovery_requests.open(now, owner, owner.address, body)

    def _add_named(
        self,
        now: int,
        subscription: ClientSubscription,
        cuts: Iterable[pb.Cut],
        *,
        ask: bool,
        moved: bool = False,
        is_announced: bool = False,
    ) -> None:
        """Notes the cuts that an answer names.

        - `ask`: the SUBSCRIBE was not forwarded to their nodes, so this client asks them.
        - `moved`: the subtrees have just moved to these nodes, which will send unsolicited SUBACKs. If they
          do not, this client asks. `is_announced`: this client knows which cuts moved with them.
        - Otherwise this client asks the nodes whose answers do not stand for the delegation (§6.1).
        """
        for subtree, node, address, epoch in filter(None, map(cut_from, cuts)):
            owner = subscription.by_node.get(node)
            is_new = owner is None
            if owner is None:
                if len(subscription.by_node) >= _MOST_OWNERS or not node:
                    continue
                owner = self._expect(now, subscription, node, address)
            cut = subtree, epoch
            if not owner.add_cut(cut, is_announced=is_announced):
                continue
            if owner.state is OwnerState.ACTIVE and owner.withholds_cuts:
                self._renew(now, owner)
            elif owner.state is OwnerState.ACTIVE:
                self._retry_if_unaccounted(now, owner)
            elif owner.state is not OwnerState.CLEAR and not (ask and is_new):
                continue
            elif ask or (not moved and cut in owner.unaccounted):
                self._ask_directly(now, owner)
            elif moved:
                owner.state_machine.handle(OwnerEvent.EXPECT)
                self._await(now, owner)

    def _accepts_answer(self, now: int, owner: SubscriptionOwner, suback: pb.SubAck) -> bool:
        """§6.1: whether an answer outside of a session counts. If the node is not responsible, and its answer
        does not stand for all delegations by which it was named, it counts like no answer."""
        owner.set_answer(owner.parts.answer)
        if suback.responsible or not owner.unaccounted:
            return True
        owner.subscription.reason = Reason.REASON_NOT_SERVING
        if owner.state is OwnerState.CLEAR:
            self._ask_directly(now, owner)
        return False

    def _retry_if_unaccounted(self, now: int, owner: SubscriptionOwner) -> None:
        """§6.1: the node's answer leaves a delegation out. An unsolicited SUBACK may still amend it;
        otherwise the client discovers anew."""
        if owner.unaccounted:
            self._owner_cache.forget(owner.address)
            subscription = owner.subscription
            subscription.reason = Reason.REASON_NOT_SERVING
            self._pauses.set(owner, now + retry_after(subscription.restarts, self._context.random))

    def _ask_directly(self, now: int, owner: SubscriptionOwner) -> None:
        owner.state_machine.handle(OwnerEvent.SILENCE)
        self._pauses.cancel(owner)
        self._send_discovery(now, owner, pb.MODE_REFERRAL)

    def _unanswered(
        self, now: int, owner: SubscriptionOwner, discovery_request: Request[SubscriptionOwner]
    ) -> None:
        owner.state_machine.handle(OwnerEvent.SILENCE)
        if owner is owner.subscription.root_owner or discovery_request.tries < _DIRECT_TRIES:
            self._discovery_requests.repeat(now, discovery_request)
        else:
            self._owner_cache.forget(owner.address)
            self._start_over(now, owner.subscription)

    def _start_over(self, now: int, subscription: ClientSubscription) -> None:
        """Discovers anew. The nodes that have the subscription are asked again in their sessions, to name
        their cuts."""
        subscription.restarts += 1
        self._discover(now, subscription)
        self.renew(now, subscription)
        self._on_change(subscription)

    def _owner(
        self, now: int, subscription: ClientSubscription, node: str, address: Address
    ) -> SubscriptionOwner:
        owner = subscription.by_node.get(node) or self._expect(now, subscription, node, address)
        if owner.link is None:
            owner.address = address
        return owner

    def _expect(
        self, now: int, subscription: ClientSubscription, node: str, address: Address
    ) -> SubscriptionOwner:
        owner = subscription.add_named(node, address)
        self._await(now, owner)
        return owner

    def _await(self, now: int, owner: SubscriptionOwner) -> None:
        self._pauses.set(owner, now + retry_after(0, self._context.random))

    def _apply_answer(self, now: int, owner: SubscriptionOwner, responsible: bool) -> None:
        """Takes a node's word outside of a session, which counts only until the session with it begins."""
        if owner.link is not None or owner.state is OwnerState.BACKING_OFF:
            return
        owner.state_machine.handle(OwnerEvent.RESPONSIBLE if responsible else OwnerEvent.NOT_RESPONSIBLE)
        self.release(owner)
        if responsible:
            self._subscribe(now, owner)

    # Within sessions

    def _renew(self, now: int, owner: SubscriptionOwner) -> None:
        owner.state_machine.handle(OwnerEvent.RENEW)
        self._subscribe(now, owner)

    def _subscribe(self, now: int, owner: SubscriptionOwner) -> None:
        """§6.2: makes or renews the subscription in the session with this node."""
        self._close_discovery_request(owner)
        link = self._context.core.connect(owner.address, self._tokens.get(now, owner.address) or b"")
        if link != owner.link:
            self.release(owner)
            self._attach(owner, link)
        if self._subscribe_requests.send_subscribe(owner, link):
            self._pauses.set(owner, now + _SUBSCRIBE_TIMEOUT)
        else:
            self._pause(now, owner, OwnerEvent.LINK_DOWN)

    def _handle_session_suback(
        self, now: int, link: int, owner: SubscriptionOwner, suback: pb.SubAck
    ) -> None:
        subscription = owner.subscription
        self._learn(now, owner, suback)
        if suback.node and suback.node != owner.node:  # Another node has this address now.
            owner.state_machine.handle(OwnerEvent.NOT_RESPONSIBLE)
            self.release(owner)
            self._start_over(now, subscription)
            return
        is_whole = owner.session_parts.add_part(suback)
        if is_whole:
            owner.set_answer(owner.session_parts.answer)
        self._add_named(now, subscription, suback.passed_to, ask=True)
        self._renew_targets(now, subscription, suback.passed_to)
        if suback.reason in TEMPORARY_REASONS:
            subscription.reason = suback.reason
            self._pause(now, owner, OwnerEvent.DEFER)
        elif suback.reason not in (Reason.REASON_SUCCESS, Reason.REASON_NOT_RESPONSIBLE):
            self._on_refused(now, subscription, suback.reason)
        elif not is_whole:
            pass
        elif suback.active:
            if self._subscribe_requests.answered(owner, suback.request):
                self._activate(now, owner)
        else:
            self._not_responsible(now, link, owner, suback)
        self._on_change(subscription)

    def _renew_targets(self, now: int, subscription: ClientSubscription, cuts: Iterable[pb.Cut]) -> None:
        """§5.4: what a node got by a handover is older than what the source was asked since. So the target is
        asked, too."""
        for target in [subscription.by_node[cut.node] for cut in cuts if cut.node in subscription.by_node]:
            if target.state is OwnerState.ACTIVE and self._subscribe_requests.has_askers(target):
                self._renew(now, target)

    def _not_responsible(self, now: int, link: int, owner: SubscriptionOwner, suback: pb.SubAck) -> None:
        """§6.3: if the answer leaves a delegation out, the node may have lost that subtree to any node."""
        subscription = owner.subscription
        subscription.links.discard(link)
        owner.state_machine.handle(OwnerEvent.NOT_RESPONSIBLE)
        self.release(owner)
        if owner.unaccounted or not (suback.passed_to or suback.held):
            self._owner_cache.forget(owner.address)
            self._start_over(now, subscription)

    def _activate(self, now: int, owner: SubscriptionOwner) -> None:
        owner.state_machine.handle(OwnerEvent.ACTIVATE)
        owner.failures = 0
        self._pauses.cancel(owner)
        self._retry_if_unaccounted(now, owner)

    def _pause(
        self, now: int, owner: SubscriptionOwner, event: OwnerEvent, *, is_reset: bool = False
    ) -> None:
        """Makes the subscription again after a pause (§6.3): a short one if the owner has just said that it
        is there."""
        owner.state_machine.handle(event)
        self.release(owner)
        attempts = owner.failures + owner.subscription.restarts
        owner.failures += 1
        pause = retry_after(attempts, self._context.random)
        self._pauses.set(owner, now + (pause // SHORTER if is_reset and not attempts else pause))

    def _pause_over(self, now: int, owner: SubscriptionOwner) -> None:
        if owner.state is OwnerState.EXPECTED:
            self._ask_directly(now, owner)
        elif owner.state is OwnerState.BACKING_OFF and owner.failures == 1:
            owner.state_machine.handle(OwnerEvent.RESUME)
            self._subscribe(now, owner)
        else:  # The node was silent a second time, or in its session: the subtree may have moved.
            self._owner_cache.forget(owner.address)
            self._start_over(now, owner.subscription)

    def _attach(self, owner: SubscriptionOwner, link: int) -> None:
        owner.link, owner.session_parts = link, SubackAnswerParts()
        owner.subscription.links.add(link)
        self._by_link.setdefault(link, {})[owner] = None

    def _close_discovery_request(self, owner: SubscriptionOwner) -> None:
        if owner.discovery_request is not None:
            self._discovery_requests.close(owner.discovery_request)
            owner.discovery_request = None
