"""The nodes that a client's subscriptions touch (§6): discovers, confirms and recovers them.

Two kinds of answers arrive here. Outside of a session, each node that the filter touches answers whether it
is responsible, and to which nodes it forwarded the SUBSCRIBE. Within sessions, the responsible nodes confirm.

- If a node stays silent, the client asks it directly.
- If a session is lost, the client makes the subscription again, once with the same node, and then by a new
  discovery, because the subtree may have moved (§6.3).
- If an owner gets or loses a subtree by a handover, it sends an unsolicited SUBACK (§5.4).

If another client behind the same address has heard of the one node that serves the filter (`knowledge`),
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
from hbroker.protocol.packets import PASSING_REASONS, Address, Reason, cut_from, pack
from hbroker.protocol.resolution.knowledge import HINT_PATIENCE, Holder
from hbroker.protocol.resolution.requests import (
    TOKEN_LIFETIME,
    Request,
    Requests,
    keep_token,
    reachable,
)
from hbroker.protocol.state_machine import Machine
from hbroker.protocol.subscriptions.client.subscription import (
    OWNER,
    AnswerParts,
    OwnerEvent,
    OwnerState,
    Subscription,
    SubscriptionOwner,
)
from hbroker.protocol.timers import SECOND, TimerQueue, earliest, retry_after

__all__ = ["SubscribeRequests", "SubscriptionOwners"]

_NEVER_ASKED: Final = -1

_DIRECT_TRIES: Final = 4
_SUBSCRIBE_PATIENCE: Final = 5 * SECOND
_MOST_OWNERS: Final = 10_000


class SubscribeRequests:
    """The SUBSCRIBEs to the responsible nodes of all subscriptions, within their sessions."""

    __slots__ = ("_cleaned", "_context", "_owners")

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._owners: dict[int, SubscriptionOwner] = {}
        """By request: the node that must answer it."""
        self._cleaned: dict[Address, int | None] = {}
        """§6.4: by owner, the link on which it was asked for a clean start; None: it has answered."""

    def ask(self, owner: SubscriptionOwner, link: int) -> bool:
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
        owner.served = {*owner.served, owner.pending.pop(request)}
        self.began(owner)
        return not owner.pending

    def began(self, owner: SubscriptionOwner) -> None:
        """§6.4: everything that the node has now is of this run of the client."""
        if self._context.session_options.clean_start:
            self._cleaned[owner.address] = None

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
        body.clean_start = self._begins_clean(owner, link)
        return self._context.core.send(link, pack(body))

    def _begins_clean(self, owner: SubscriptionOwner, link: int) -> bool:
        """§6.4: `clean_start` is in the first SUBSCRIBE of each link to an owner, until the owner has
        answered one."""
        last_link = self._cleaned.get(owner.address, _NEVER_ASKED)
        if not self._context.session_options.clean_start or last_link is None or last_link == link:
            return False
        self._cleaned[owner.address] = link
        return True


def _askers(owner: SubscriptionOwner) -> list[int]:
    listeners = owner.subscription.listeners
    return _unasked(owner) or (list(listeners) if len(listeners) == 1 else [0])


def _unasked(owner: SubscriptionOwner) -> list[int]:
    known = owner.subscription
    waiting = known.waiting.difference(owner.served, owner.pending.values())
    return sorted(
        each for each in waiting if known.listeners[each].retain_handling != pb.RETAIN_HANDLING_DO_NOT_SEND
    )


class SubscriptionOwners:
    """The owners of all subscriptions of one client. `review`: called after an event that may make a
    subscription complete or incomplete. `refuse`: called with the reason for which a node refuses a
    subscription."""

    __slots__ = (
        "_by_link",
        "_context",
        "_owner_cache",
        "_pauses",
        "_questions",
        "_refuse",
        "_review",
        "_subscribe_requests",
        "_tokens",
    )

    def __init__(
        self,
        context: ClientContext,
        review: Callable[[Subscription], None],
        refuse: Callable[[int, Subscription, int], None],
    ) -> None:
        self._context = context
        self._tokens = context.knowledge.tokens
        self._owner_cache = context.knowledge.owner_cache
        self._review = review
        self._refuse = refuse
        self._questions: Requests[SubscriptionOwner] = Requests(context.core, context.random, self._tokens)
        self._by_link: dict[int, dict[SubscriptionOwner, None]] = {}
        self._subscribe_requests = SubscribeRequests(context)
        self._pauses: TimerQueue[SubscriptionOwner] = TimerQueue()

    # In: the client

    def begin(self, now: int, known: Subscription) -> None:
        """Begins a new subscription."""
        hint = self._owner_cache.sole_holder(now, known.filter)
        if hint is None:
            self._discover(now, known)
        else:
            self._begin_at(now, known, hint)

    def renew(self, now: int, known: Subscription) -> None:
        """The options of a subscription changed: sends SUBSCRIBE to the nodes that have it."""
        for owner in known.everyone:
            if owner.machine.accepts(OwnerEvent.RENEW):
                self._renew(now, owner)

    def release(self, owner: SubscriptionOwner) -> None:
        """Awaits nothing more from this node, and forgets the link to it."""
        self._close_question(owner)
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
        self._questions.handle_challenge(now, source, challenge)

    def handle_answer(self, now: int, source: Address, suback: pb.SubAck) -> None:
        """§6.1: handles a SUBACK outside of a session: whether the node is responsible, and which nodes it
        named."""
        question = self._questions.find(suback.request)
        if question is None or not suback.node:
            return
        pending = question.owner
        known = pending.subscription
        is_direct = pending is not known.entry
        self._name(now, known, suback.passed_to, ask=is_direct)
        if suback.reason != Reason.REASON_SUCCESS:
            self._refuse(now, known, suback.reason)
            return
        owner = self._owner(now, known, suback.node, reachable(suback.address, source))
        self._learn(now, owner, suback, is_root=not is_direct and source == question.address)
        if not owner.parts.take(suback):
            self._review(known)
            return
        if owner.link is None and not self._stands(now, owner, suback):
            self._review(known)
            return
        if not is_direct and (source == question.address or suback.hops == 0):
            pending.machine.handle(OwnerEvent.NOT_RESPONSIBLE)
            self._questions.settle(question)
        elif is_direct and pending.node != suback.node:  # Another node has this address now.
            pending.machine.handle(OwnerEvent.NOT_RESPONSIBLE)
            self.release(pending)
            self._doubt(now, pending)
        self._judge(now, owner, suback.responsible)
        self._review(known)

    def handle_session_suback(self, now: int, link: int, suback: pb.SubAck) -> bool:
        """§6.2: handles an answer within a session. False: no open request matches it."""
        owner = self._subscribe_requests.find(suback.request)
        if owner is None or owner.link != link:
            return False
        self._handle_session_suback(now, link, owner, suback)
        return True

    def handle_owner_change(
        self, now: int, known: Subscription, link: int, source: Address, suback: pb.SubAck
    ) -> None:
        """§5.4: handles an unsolicited SUBACK, by which an owner gets or loses topics of the filter."""
        before = known.by_node.get(suback.node)
        is_awaited = known.is_discovering if before is None else before.is_awaited
        # What it had delegated is known, and each change since, as long as the session has had this one link.
        knows_cuts = before is not None and before.state is OwnerState.ACTIVE and before.link == link
        has_new_link = before is not None and before.link not in (None, link)
        owner = self._owner(now, known, suback.node, reachable(suback.address, source))
        self._learn(now, owner, suback)
        is_whole = owner.session_parts.take(suback)
        if is_whole:
            owner.amend_answer(owner.session_parts.answer)
        self._name(now, known, suback.passed_to, ask=False, moved=True, is_announced=knows_cuts)
        if not is_whole:
            return
        if suback.active and owner.pending and owner.link == link:
            return  # Its answer to the open requests follows.
        if suback.active and is_awaited:  # §6.2: its cuts are not known yet.
            owner.machine.handle(OwnerEvent.RESPONSIBLE)
            self._subscribe(now, owner)
        elif suback.active and owner.state is OwnerState.BACKING_OFF:  # Nor what it was handed since.
            owner.machine.handle(OwnerEvent.RESUME)
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
        self._review(known)

    def handle_link_down(self, now: int, link: int, *, is_refused: bool) -> None:
        """§6.3: makes every subscription of that session again. `is_refused`: as in
        `Subscriber.handle_link_down`."""
        for owner in list(self._by_link.get(link, ())):
            if is_refused:
                owner.subscription.reason = Reason.REASON_QUOTA_EXCEEDED
            self._owner_cache.forget(owner.address)
            self._pause(now, owner, OwnerEvent.LINK_DOWN)
            self._review(owner.subscription)

    def handle_timeout(self, now: int) -> None:
        """Asks silent nodes again, and makes lost subscriptions again."""
        for question in self._questions.unanswered(now):
            self._unanswered(now, question.owner, question)
        for owner in self._pauses.due(now):
            self._pause_over(now, owner)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return earliest(self._questions.poll_timeout(), self._pauses.next())

    # Discovery

    def _discover(self, now: int, known: Subscription) -> None:
        for owner in known.restart():
            self.release(owner)
        known.entry = SubscriptionOwner(known, "", self._context.root, Machine(OWNER, OwnerState.ASKED))
        self._ask(now, known.entry, pb.MODE_RECURSIVE)

    def _begin_at(self, now: int, known: Subscription, hint: Holder) -> None:
        """Begins with the node that seems to serve all topics of the filter: its answer within the session
        says what it holds."""
        owner = known.name(hint.node, hint.address)
        owner.add_cut((hint.subtree, 0))
        self._judge(now, owner, responsible=True)
        if owner.state is OwnerState.SUBSCRIBING:
            self._pauses.set(owner, now + HINT_PATIENCE)

    def _learn(self, now: int, owner: SubscriptionOwner, suback: pb.SubAck, *, is_root: bool = False) -> None:
        """Takes token, subtrees and cuts of an answer into the caches, for other clients at this address."""
        keep_token(self._tokens, now, owner.address, suback.token, TOKEN_LIFETIME)
        self._owner_cache.learn(
            now, suback.node, owner.address, suback.held, suback.passed_to, is_root=is_root
        )

    def _ask(self, now: int, owner: SubscriptionOwner, mode: pb.Mode) -> None:
        known = owner.subscription
        body = known.packet(self._context.session_options)
        body.mode = mode
        self._close_question(owner)
        owner.question = self._questions.ask(now, owner, owner.address, body)

    def _name(
        self,
        now: int,
        known: Subscription,
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
            owner = known.by_node.get(node)
            is_new = owner is None
            if owner is None:
                if len(known.by_node) >= _MOST_OWNERS or not node:
                    continue
                owner = self._expect(now, known, node, address)
            cut = subtree, epoch
            if not owner.add_cut(cut, is_announced=is_announced):
                continue
            if owner.state is OwnerState.ACTIVE and owner.withholds_cuts:
                self._renew(now, owner)
            elif owner.state is OwnerState.ACTIVE:
                self._doubt(now, owner)
            elif owner.state is not OwnerState.CLEAR and not (ask and is_new):
                continue
            elif ask or (not moved and cut in owner.left_out):
                self._ask_directly(now, owner)
            elif moved:
                owner.machine.handle(OwnerEvent.EXPECT)
                self._await(now, owner)

    def _stands(self, now: int, owner: SubscriptionOwner, suback: pb.SubAck) -> bool:
        """§6.1: whether an answer outside of a session counts. If the node is not responsible, and its answer
        does not stand for all delegations by which it was named, it counts like no answer."""
        owner.set_answer(owner.parts.answer)
        if suback.responsible or not owner.left_out:
            return True
        owner.subscription.reason = Reason.REASON_NOT_SERVING
        if owner.state is OwnerState.CLEAR:
            self._ask_directly(now, owner)
        return False

    def _doubt(self, now: int, owner: SubscriptionOwner) -> None:
        """§6.1: the node's answer leaves a delegation out. An unsolicited SUBACK may still amend it;
        otherwise the client discovers anew."""
        if owner.left_out:
            self._owner_cache.forget(owner.address)
            known = owner.subscription
            known.reason = Reason.REASON_NOT_SERVING
            self._pauses.set(owner, now + retry_after(known.restarts, self._context.random))

    def _ask_directly(self, now: int, owner: SubscriptionOwner) -> None:
        owner.machine.handle(OwnerEvent.SILENCE)
        self._pauses.cancel(owner)
        self._ask(now, owner, pb.MODE_REFERRAL)

    def _unanswered(self, now: int, owner: SubscriptionOwner, question: Request[SubscriptionOwner]) -> None:
        owner.machine.handle(OwnerEvent.SILENCE)
        if owner is owner.subscription.entry or question.tries < _DIRECT_TRIES:
            self._questions.repeat(now, question)
        else:
            self._owner_cache.forget(owner.address)
            self._start_over(now, owner.subscription)

    def _start_over(self, now: int, known: Subscription) -> None:
        """Discovers anew. The nodes that have the subscription are asked again in their sessions, to name
        their cuts."""
        known.restarts += 1
        self._discover(now, known)
        self.renew(now, known)
        self._review(known)

    def _owner(self, now: int, known: Subscription, node: str, address: Address) -> SubscriptionOwner:
        owner = known.by_node.get(node) or self._expect(now, known, node, address)
        if owner.link is None:
            owner.address = address
        return owner

    def _expect(self, now: int, known: Subscription, node: str, address: Address) -> SubscriptionOwner:
        owner = known.name(node, address)
        self._await(now, owner)
        return owner

    def _await(self, now: int, owner: SubscriptionOwner) -> None:
        self._pauses.set(owner, now + retry_after(0, self._context.random))

    def _judge(self, now: int, owner: SubscriptionOwner, responsible: bool) -> None:
        """Takes a node's word outside of a session, which counts only until the session with it begins."""
        if owner.link is not None or owner.state is OwnerState.BACKING_OFF:
            return
        owner.machine.handle(OwnerEvent.RESPONSIBLE if responsible else OwnerEvent.NOT_RESPONSIBLE)
        self.release(owner)
        if responsible:
            self._subscribe(now, owner)

    # Within sessions

    def _renew(self, now: int, owner: SubscriptionOwner) -> None:
        owner.machine.handle(OwnerEvent.RENEW)
        self._subscribe(now, owner)

    def _subscribe(self, now: int, owner: SubscriptionOwner) -> None:
        """§6.2: makes or renews the subscription in the session with this node."""
        self._close_question(owner)
        link = self._context.core.connect(owner.address, self._tokens.get(now, owner.address) or b"")
        if link != owner.link:
            self.release(owner)
            self._attach(owner, link)
        if self._subscribe_requests.ask(owner, link):
            self._pauses.set(owner, now + _SUBSCRIBE_PATIENCE)
        else:
            self._pause(now, owner, OwnerEvent.LINK_DOWN)

    def _handle_session_suback(
        self, now: int, link: int, owner: SubscriptionOwner, suback: pb.SubAck
    ) -> None:
        known = owner.subscription
        self._learn(now, owner, suback)
        if suback.node and suback.node != owner.node:  # Another node has this address now.
            owner.machine.handle(OwnerEvent.NOT_RESPONSIBLE)
            self.release(owner)
            self._start_over(now, known)
            return
        is_whole = owner.session_parts.take(suback)
        if is_whole:
            owner.set_answer(owner.session_parts.answer)
        self._name(now, known, suback.passed_to, ask=True)
        self._renew_heirs(now, known, suback.passed_to)
        if suback.reason in PASSING_REASONS:
            known.reason = suback.reason
            self._pause(now, owner, OwnerEvent.DEFER)
        elif suback.reason not in (Reason.REASON_SUCCESS, Reason.REASON_NOT_RESPONSIBLE):
            self._refuse(now, known, suback.reason)
        elif not is_whole:
            pass
        elif suback.active:
            self._served(now, owner, suback)
        else:
            self._not_responsible(now, link, owner, suback)
        self._review(known)

    def _served(self, now: int, owner: SubscriptionOwner, suback: pb.SubAck) -> None:
        is_settled = self._subscribe_requests.answered(owner, suback.request)
        if is_settled:
            self._activate(now, owner)

    def _renew_heirs(self, now: int, known: Subscription, cuts: Iterable[pb.Cut]) -> None:
        """§5.4: what a node got by a handover is older than what the source was asked since. So the target is
        asked, too."""
        for heir in [known.by_node[cut.node] for cut in cuts if cut.node in known.by_node]:
            if heir.state is OwnerState.ACTIVE and self._subscribe_requests.has_askers(heir):
                self._renew(now, heir)

    def _not_responsible(self, now: int, link: int, owner: SubscriptionOwner, suback: pb.SubAck) -> None:
        """§6.3: if the answer leaves a delegation out, the node may have lost that subtree to any node."""
        known = owner.subscription
        known.links.discard(link)
        owner.machine.handle(OwnerEvent.NOT_RESPONSIBLE)
        self.release(owner)
        if owner.left_out or not (suback.passed_to or suback.held):
            self._owner_cache.forget(owner.address)
            self._start_over(now, known)

    def _activate(self, now: int, owner: SubscriptionOwner) -> None:
        owner.machine.handle(OwnerEvent.ACTIVATE)
        owner.failures = 0
        self._pauses.cancel(owner)
        self._doubt(now, owner)

    def _pause(self, now: int, owner: SubscriptionOwner, event: OwnerEvent) -> None:
        """Makes the subscription again after a pause (§6.3)."""
        owner.machine.handle(event)
        self.release(owner)
        attempts = owner.failures + owner.subscription.restarts
        owner.failures += 1
        self._pauses.set(owner, now + retry_after(attempts, self._context.random))

    def _pause_over(self, now: int, owner: SubscriptionOwner) -> None:
        if owner.state is OwnerState.EXPECTED:
            self._ask_directly(now, owner)
        elif owner.state is OwnerState.BACKING_OFF and owner.failures == 1:
            owner.machine.handle(OwnerEvent.RESUME)
            self._subscribe(now, owner)
        else:  # The node was silent a second time, or in its session: the subtree may have moved.
            self._owner_cache.forget(owner.address)
            self._start_over(now, owner.subscription)

    def _attach(self, owner: SubscriptionOwner, link: int) -> None:
        owner.link, owner.session_parts = link, AnswerParts()
        owner.subscription.links.add(link)
        self._by_link.setdefault(link, {})[owner] = None

    def _close_question(self, owner: SubscriptionOwner) -> None:
        if owner.question is not None:
            self._questions.close(owner.question)
            owner.question = None
