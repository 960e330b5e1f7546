"""A node as a child: one state machine for each subtree that it claims (§5.1, §5.6).

1. It asks the root for its parent, and opens a link there.
2. It takes the subtree over in a handover, and then renews its lease.
3. If the link is lost, it serves on while the lease lasts. It asks the parent and the root in turn, because
   the parent may not come back.
4. If its parent is not the parent any more, the parent names the new one (§5.4).

`claim_states` has the states, `join_requests` the JOINs, and `lease` what is held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.context import NodeContext
from hbroker.protocol.events import Joined, LeaseLost, Left, NameTaken, PolicyLowered, Refused, Unproved
from hbroker.protocol.handover.phases import HandoverSource, HandoverTarget, SourceState, TargetState
from hbroker.protocol.handover.recovery import Recovery
from hbroker.protocol.handover.subtree_state import ReceivedState
from hbroker.protocol.hierarchy.child.claim_states import CLAIM_TRANSITIONS, ClaimEvent, ClaimState
from hbroker.protocol.hierarchy.child.join_requests import JoinRequests
from hbroker.protocol.hierarchy.child.lease import Lease
from hbroker.protocol.hierarchy.parent.delegations import Delegations
from hbroker.protocol.hierarchy.parent.join_responder import JoinResponder
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT, Grant
from hbroker.protocol.packets import TEMPORARY_REASONS, Address, Cut, Reason, address_from, cut_from, pack
from hbroker.protocol.sessions.subscription_store import Subscription, subscription_from
from hbroker.protocol.state_machine import StateMachine
from hbroker.protocol.subscriptions.owner.subscriptions import OwnerSubscriptions
from hbroker.protocol.timers import earliest

__all__ = ["ClaimContext", "SubtreeClaim"]

GRANT_WAIT: Final = 2 * timers.SECOND
"""Microseconds that a parent may take for a grant after its invitation."""
LEAVE_WAIT: Final = 3 * timers.SECOND
"""Microseconds that a parent may be silent while it takes a subtree back."""
COVERED_WAIT: Final = timers.SECOND
"""Microseconds after which a claim within a larger subtree that the node serves checks whether it still
does."""
REFUSED_WAIT: Final = 4
"""A refusal, or an answer that proves nothing, counts like this many tries without an answer, so the next try
comes late."""
FINAL_REASONS: Final = frozenset({Reason.REASON_NOT_AUTHORIZED, Reason.REASON_PROTOCOL_ERROR})


@dataclass(frozen=True, slots=True)
class ClaimContext:
    """What all claims of one node share.

    `close_link(link)`: closes a link to a parent, unless another claim uses it.
    """

    node: NodeContext
    owner_subscriptions: OwnerSubscriptions
    recovery: Recovery
    delegations: Delegations
    join_responder: JoinResponder
    close_link: Callable[[int], None]


class SubtreeClaim:
    """The claim to one subtree."""

    def __init__(self, subtree: str, context: ClaimContext) -> None:
        self.subtree: Final = subtree
        self._context = context
        self._settings = context.node.settings
        self._core = context.node.core
        self._random = context.node.random
        self._jurisdiction = context.node.jurisdiction
        self._owner_subscriptions = context.owner_subscriptions
        self._diagnostics = context.node.diagnostics
        self._state_machine = StateMachine(CLAIM_TRANSITIONS, ClaimState.AWAIT_INVITATION)
        self._parent: Address | None = None
        self.parent = ""
        """The parent's name; empty: there is none yet."""
        self.link: int | None = None
        """The link to the parent; None: there is none."""
        self._former: int | None = None
        """The link to the former parent, until the new one grants."""
        self._lease = Lease(subtree, context.node.jurisdiction)
        self._join_requests = JoinRequests(subtree, context.node, self._lease)
        self._attempt = 0
        self._retry_at: int | None = None
        self._renew_at: int | None = None
        """When to renew while the subtree is handed back, which may take longer than a lease (§5.4)."""
        self._handover_target: HandoverTarget | None = None
        self._owes_done = False
        """DONE was not sent over this link yet. It may wait for the disk (§5.10)."""
        self._done_is_queued = False
        """`AfterSync` has taken the DONE."""
        self._handover_source: HandoverSource | None = None
        self._hands_back = False
        """An order asked to hand the subtree back."""
        self._exported = 0
        """Where the core holds what waited for subscribers when the subtree was handed back and the outcome
        is unknown; 0: nothing."""
        self.last_refusal: pb.JoinAck | None = None
        """The last refusal since the subtree was last served."""

    # Change

    def start(self, now: int) -> None:
        """Begins to ask for the subtree."""
        self._ask_root(now)

    def handle_challenge(self, now: int, source: Address, challenge: pb.Challenge) -> None:
        """The root asks for a proof of this node's address: sends the request again, with the token."""
        is_asking = self._state_machine.state in (ClaimState.AWAIT_INVITATION, ClaimState.AWAIT_RENEWAL)
        if source == self._context.node.root and is_asking:
            self._join_requests.obey(now, challenge.token)

    def handle_joinack(self, now: int, link: int | None, ack: pb.JoinAck) -> bool:
        """Handles JOINACK. Returns whether it answers a JOIN of this claim.

        An invitation arrives outside of a session, a grant within. The parent may also send JOINACK without a
        request: another node is the parent now.
        """
        if not ack.request and ack.reason == Reason.REASON_HANDOVER:
            return self._is_from_parent(link, ack) and self._renew_at_new_parent(now, ack)
        if not self._join_requests.is_open(ack.request) or ack.subtree != self.subtree:
            return False
        if link is None and not self._join_requests.is_proved(ack):
            self._doubt(now)
            return True
        sent = self._join_requests.answered(ack.request)
        assert sent is not None
        if link is None and self._settings.join_key and ack.nonce not in (0, sent.nonce):
            self._prove(now, ack.nonce)
        elif ack.reason != Reason.REASON_SUCCESS:
            self.handle_refusal(now, ack)
        elif link is None:
            self._invited(now, ack)
        elif link == self.link and ack.epoch:
            self._granted(now, sent.at, link, ack)
        return True

    def handle_transfer(self, now: int, link: int, transfer: pb.Transfer) -> bool:
        """Handles TRANSFER of the parent, in a handover in either direction. Returns whether it was
        expected."""
        if link != self.link or transfer.epoch != self._lease.epoch:
            return False
        if self._handover_target is not None:
            return self._handle_transfer(now, self._handover_target, transfer)
        if self._handover_source is not None:
            return self._give(now, self._handover_source, transfer)
        if self._state_machine.state is ClaimState.SERVING and transfer.phase == pb.TRANSFER_PHASE_RECORDS:
            self._take_misrouted(transfer)
            return True
        return False

    def handle_link_down(self, now: int, link: int, *, is_refused: bool = False) -> None:
        """A link ended. `is_refused`: the parent refused the session, because it has too many."""
        if link != self.link:
            return
        self.link = None
        self._join_requests.forget()
        if self._hands_back and self._handover_source is not None:
            self._handing_back_failed(now, self._handover_source)
        elif self._state_machine.accepts(ClaimEvent.LINK_LOST):
            was = self._state_machine.state
            state = self._state_machine.handle(ClaimEvent.LINK_LOST)
            if was is not state:
                self._attempt = 0
            self._enter_and_report(now, state)
            if is_refused and self._retry_at is not None:
                self._diagnostics.add_event(
                    Refused(self.subtree, Reason.REASON_QUOTA_EXCEEDED, "", final=False)
                )
                self._attempt = max(self._attempt, REFUSED_WAIT)
                self._retry_after(now, timers.retry_after(self._attempt, self._random))

    def handle_timeout(self, now: int) -> None:
        """Stops serving if the lease has ended; then does everything else that is due."""
        if self._lease.is_over(now) and self._hands_back and self._handover_source is not None:
            self._handing_back_failed(now, self._handover_source)
        elif self._lease.is_over(now) and self._state_machine.accepts(ClaimEvent.FENCED):
            self._fence(now)
        if self._handover_source is not None:
            self._handover_source.handle_timeout(now)
        if self._renew_at is not None and now >= self._renew_at:
            self._renew_leaving(now)
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            self._retry(now)

    def hand_back(self, now: int) -> None:
        """Carries out an order to hand the subtree back. It ends when the parent has the subtree, or another
        node turns out to have it. Until then this node goes on, whatever fails."""
        self._hands_back = True
        if self._state_machine.state is ClaimState.SERVING:
            self._leave(now)
        elif self._state_machine.state is ClaimState.AWAIT_INVITATION:
            if self.is_covered or (
                self.last_refusal is not None and self.last_refusal.reason not in TEMPORARY_REASONS
            ):
                self._enter_and_report(now, self._state_machine.handle(ClaimEvent.LEAVE))
            else:
                self._retry_after(now, 0)

    def leave(self, now: int) -> None:
        """The node leaves: hands the subtree back, with the cuts below it, or stops if it cannot."""
        self._hands_back = False
        self._leave(now)

    def _leave(self, now: int) -> None:
        if not self._state_machine.accepts(ClaimEvent.LEAVE):
            return
        self._context.join_responder.close(self.subtree)
        state = self._state_machine.handle(ClaimEvent.LEAVE)
        link = self.link
        if state is not ClaimState.AWAIT_TAKE_BACK or link is None:
            self._enter_and_report(now, ClaimState.STOPPED)
            return
        self._core.send(link, pack(pb.Leave(subtree=self.subtree, epoch=self._lease.epoch)))
        delegations = self._context.delegations
        self._handover_source = HandoverSource(
            self._core, delegations.subtree_state, self.subtree, self._lease.epoch, link, delegations
        )
        self._handover_source.begin(now)
        self._retry_at = now + LEAVE_WAIT
        self._renew_at = now + timers.LEASE // timers.LEASE_RENEWALS

    def merge(self, now: int) -> None:
        """§5.1: if this node has come to serve the subtree around this one, this one becomes a part of it,
        and has no grant of its own any more. Nothing moves."""
        if not self.is_held or not self._jurisdiction.is_inner(self.subtree):
            return
        self._state_machine.handle(ClaimEvent.COVERED)
        self._jurisdiction.merge(self.subtree)
        self._context.delegations.raise_epoch(self._lease.epoch)
        links = self.link, self._former
        self._stop()
        for link in links:
            if link is not None:
                self._context.close_link(link)
        self._retry_after(now, COVERED_WAIT)

    def handle_subscription_changed(self, subscription: Subscription, ended: bool) -> None:
        """A subscription changed: sends the change in a handover under way."""
        if self._handover_source is not None:
            self._handover_source.handle_subscription_changed(subscription, ended)

    # Read

    @property
    def state(self) -> ClaimState:
        """The state of the claim."""
        return self._state_machine.state

    @property
    def is_held(self) -> bool:
        """Whether this node serves the subtree because of this claim."""
        return self._state_machine.state in (ClaimState.SERVING, ClaimState.AWAIT_RENEWAL)

    @property
    def is_covered(self) -> bool:
        """Whether this node serves the subtree because of a claim to a larger one (§5.1)."""
        decider = self._jurisdiction.lookup(self.subtree)
        return isinstance(decider, Grant) and decider.subtree != self.subtree and decider.serving

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        handover_source = None if self._handover_source is None else self._handover_source.poll_timeout()
        return earliest(self._lease.until, self._retry_at, self._renew_at, handover_source)

    # Asking

    def _ask_root(self, now: int) -> None:
        self._join_requests.ask_root(now)
        self._retry_after(now, timers.retry_after(self._attempt, self._random, timers.SEARCH_MOST))

    def _ask_parent(self, now: int, parent: Address) -> None:
        before, self.link = self.link, self._core.connect(parent, self._join_requests.token)
        if before not in (None, self._former, self.link):
            self._context.close_link(before)  # A JOIN that still waits on it would arrive too late.
        self._core.send(self.link, self._join_requests.make(now))
        self._retry_after(now, GRANT_WAIT)

    def _renew_leaving(self, now: int) -> None:
        handover_source, link = self._handover_source, self.link
        self._renew_at = None
        if handover_source is None or handover_source.has_stopped or link is None:
            return
        self._core.send(link, self._join_requests.make(now, leaving=True))
        self._renew_at = now + timers.LEASE // timers.LEASE_RENEWALS

    def _retry_after(self, now: int, period: int) -> None:
        self._retry_at = now + period

    def _retry(self, now: int) -> None:
        match self._state_machine.state:
            case ClaimState.AWAIT_INVITATION:
                if self.is_covered:
                    self._retry_after(now, COVERED_WAIT)
                    return
                self._attempt += 1
                self._ask_root(now)
            case ClaimState.AWAIT_GRANT:
                self._close_link()
                self._attempt += 1
                self._state_machine.handle(ClaimEvent.TIMED_OUT)
                self._ask_root(now)
            case ClaimState.AWAIT_HANDOVER | ClaimState.SERVING:
                assert self.link is not None
                self._core.send(self.link, self._join_requests.make(now))
                self._retry_after(now, GRANT_WAIT)
            case ClaimState.AWAIT_RENEWAL:
                self._state_machine.handle(ClaimEvent.TIMED_OUT)
                self._rejoin(now)
            case ClaimState.AWAIT_TAKE_BACK if (
                self._handover_source and now < self._handover_source.progress_at + LEAVE_WAIT
            ):
                self._retry_at = self._handover_source.progress_at + LEAVE_WAIT
            case ClaimState.AWAIT_TAKE_BACK if self._hands_back and self._handover_source:
                self._handing_back_failed(now, self._handover_source)
            case ClaimState.AWAIT_TAKE_BACK:
                self._enter_and_report(now, self._state_machine.handle(ClaimEvent.TIMED_OUT))

    def _rejoin(self, now: int) -> None:
        """Asks the parent and the root in turn."""
        self._attempt += 1
        if self._attempt % 2 and self._parent is not None:
            self._ask_parent(now, self._parent)
        else:
            self.link = None
            self._ask_root(now)

    # Answers

    def _doubt(self, now: int) -> None:
        """Handles an answer that does not prove the join key. Anybody may have sent it, so it ends nothing
        and begins nothing, and an answer that proves the key still counts. But the key of either node may be
        missing or wrong. So a claim without an invitation reports it, and delays its next try."""
        self._diagnostics.drop("unauthenticated")
        if self._state_machine.state is ClaimState.AWAIT_INVITATION and self._join_requests.doubt():
            self._diagnostics.add_event(Unproved(self.subtree))
            self._attempt = max(self._attempt, REFUSED_WAIT)
            self._retry_after(now, timers.retry_after(self._attempt, self._random))

    def _prove(self, now: int, nonce: int) -> None:
        """The root asks for a proof of the key over this nonce: sends the JOIN again, with the proof."""
        if self._join_requests.learn(nonce):
            self._ask_root(now)

    def _invited(self, now: int, ack: pb.JoinAck) -> None:
        parent = address_from(ack.address)
        if parent is None or not self._state_machine.accepts(ClaimEvent.INVITED):
            self._diagnostics.drop("unexpected_packet")
            return
        self._state_machine.handle(ClaimEvent.INVITED)
        self._parent, self._join_requests.token = parent, ack.token
        self._join_requests.forget()
        self._ask_parent(now, parent)

    def _granted(self, now: int, sent_at: int, link: int, ack: pb.JoinAck) -> None:
        if self._state_machine.accepts(ClaimEvent.GRANTED):
            self._state_machine.handle(ClaimEvent.GRANTED)
            self._lease.epoch = ack.epoch
            self._handover_target = HandoverTarget(
                self._core, self._context.delegations.subtree_state, self.subtree, ack.epoch, link
            )
        elif self._state_machine.accepts(ClaimEvent.RENEWED) and ack.epoch == self._lease.epoch:
            self._owes_done |= self._state_machine.state is ClaimState.AWAIT_RENEWAL
            self._state_machine.handle(ClaimEvent.RENEWED)
            self._send_done_after_sync()
        else:
            self._diagnostics.drop("unexpected_packet")
            return
        self._context.node.epoch_clock.follow(now, ack.epoch_clock)
        self._attempt = 0
        self.parent, self._join_requests.token = ack.node, ack.token
        self._leave_former(link)
        renewal = self._lease.renew(sent_at, ack)
        if renewal.is_fenced_now and self._settings.policy is LeasePolicy.SERVE:
            self._diagnostics.add_event(PolicyLowered(self.subtree, self.parent))
        if self._handover_source is not None:
            self._update_grant(serving=not self._handover_source.has_stopped)
            return
        self._update_grant(serving=self._state_machine.state is ClaimState.SERVING)
        self._retry_after(
            now, 0 if renewal.must_tell_parent else ack.lease_ms * 1000 // timers.LEASE_RENEWALS
        )
        if self._hands_back and self._state_machine.state is ClaimState.SERVING:
            self._leave(now)

    def handle_refusal(self, now: int, ack: pb.JoinAck) -> None:
        """A parent refused this claim, or the node was refused for good before it made the claim."""
        state = self._state_machine.state
        is_final = ack.reason in FINAL_REASONS
        temporary = ack.reason in TEMPORARY_REASONS
        before, self.last_refusal = self.last_refusal, ack
        self._note_refusal(before, ack, is_final)
        if state in (ClaimState.AWAIT_INVITATION, ClaimState.AWAIT_GRANT):
            self.link = None
            self._join_requests.forget()
            if self._hands_back and not temporary:  # The claim holds nothing that it could hand back.
                self._enter_and_report(now, self._state_machine.handle(ClaimEvent.LEAVE))
                return
            event = ClaimEvent.FINALLY_REFUSED if is_final else ClaimEvent.REFUSED
            self._state_machine.handle(event)
            self._attempt = max(self._attempt, 0 if temporary else REFUSED_WAIT)
            wait = timers.retry_after(self._attempt, self._random)
            self._retry_at = None if is_final else now + wait
        elif ack.reason == Reason.REASON_OUTSIDE_JURISDICTION and self._renew_at_new_parent(now, ack):
            pass
        elif temporary or self._seeks_another(ack.reason):
            self._retry_after(now, timers.retry_after(self._attempt, self._random))
        elif self._state_machine.accepts(ClaimEvent.FENCED):
            self._fence(now)

    def _note_refusal(self, before: pb.JoinAck | None, ack: pb.JoinAck, is_final: bool) -> None:
        holder = cut_from(ack.holder)
        is_name = self.subtree == f"{STATUS_ROOT}/{self._settings.name}"
        if not is_name or holder is None or ack.reason != Reason.REASON_OVERLAP:
            self._diagnostics.add_event(Refused(self.subtree, ack.reason, ack.holder.node, is_final))
        elif before is None or before.holder.address != ack.holder.address:
            self._diagnostics.add_event(NameTaken(self.subtree, self._settings.name, holder[2]))

    def _renew_at_new_parent(self, now: int, ack: pb.JoinAck) -> bool:
        """Renews at the new parent that the former one names (§5.4)."""
        holder = cut_from(ack.holder)
        if (
            holder is None
            or holder[2] == self._settings.address
            or not self._state_machine.accepts(ClaimEvent.REPARENTED)
        ):
            return False
        self._state_machine.handle(ClaimEvent.REPARENTED)
        self._former, self._attempt, self._join_requests.token = self.link, 0, b""
        self._parent = holder[2]
        self._join_requests.forget()
        self._ask_parent(now, self._parent)
        return True

    def _is_from_parent(self, link: int | None, ack: pb.JoinAck) -> bool:
        return link is not None and link == self.link and ack.subtree == self.subtree

    def _leave_former(self, link: int) -> None:
        former, self._former = self._former, None
        if former is not None and former != link:
            self._context.close_link(former)

    def _seeks_another(self, reason: pb.Reason) -> bool:
        """Whether the lease lasts and the former parent is not the parent any more. The root may know the new
        one."""
        outside = reason == Reason.REASON_OUTSIDE_JURISDICTION
        return outside and self._state_machine.state is ClaimState.AWAIT_RENEWAL

    # Handover

    def _handle_transfer(self, now: int, handover_target: HandoverTarget, transfer: pb.Transfer) -> bool:
        state = handover_target.handle(transfer)
        if state is TargetState.AWAIT_COMMIT and transfer.last:
            self._context.delegations.forget_ended(self.subtree, handover_target.received)
        elif state is TargetState.COMPLETE:
            self._handover_target = None
            self._state_machine.handle(ClaimEvent.HANDED_OVER)
            self._reinstall_exported(handover_target.received)
            self._context.delegations.subtree_state.install_state(now, handover_target.received)
            if handover_target.received.refused:
                self._diagnostics.drop("too_many_records", handover_target.received.refused)
            self._context.recovery.handle_return(now, self.subtree)
            self.last_refusal = None
            self._update_grant(serving=True)
            self._owes_done = True
            self._send_done_after_sync()
            # The handover also brought what touches only the cuts.
            if self._jurisdiction.cuts_below(self.subtree):
                self._context.delegations.sweep()
            self._diagnostics.add_event(Joined(self.subtree, self.parent, self._lease.epoch))
            if self._hands_back:
                self._leave(now)
        return state is not None

    def _send_done_after_sync(self) -> None:
        """Sends DONE once the notes are on the disk. If too many actions wait for the disk, the next renewal
        tries again.

        The parent keeps what it handed over until DONE. So DONE is sent over each new link, because the one
        before may be lost, and the parent may be another.
        """
        if self._owes_done and not self._done_is_queued:
            self._done_is_queued = True  # Until it is sent, which may be at once.
            if not self._context.node.after_sync.run_when_durable(
                partial(self._send_done, self._lease.epoch)
            ):
                self._done_is_queued = False

    def _send_done(self, epoch: int) -> None:
        """Sends DONE, unless the lease that it is for has ended, or the subtree is being handed back."""
        if epoch != self._lease.epoch:
            return
        self._done_is_queued = False
        if self._state_machine.state is ClaimState.SERVING and self.link is not None:
            done = pb.Transfer(subtree=self.subtree, epoch=epoch, phase=pb.TRANSFER_PHASE_DONE)
            self._owes_done = not self._core.send(self.link, pack(done))

    def _reinstall_exported(self, received: ReceivedState) -> None:
        """Takes what left with a failed handing back in again, if nobody has served the subtree since (§5.4,
        old cuts). Otherwise the parent has it, or had it."""
        exported, self._exported = self._exported, 0
        if exported and self.subtree in received.cuts:
            received.held.insert(0, exported)
        elif exported:
            self._core.drop_held(exported)

    def _take_misrouted(self, transfer: pb.Transfer) -> None:
        """After a restart the parent took these records in, before it knew of this node (§5.1)."""
        found = map(subscription_from, transfer.subscriptions)
        self._owner_subscriptions.add_misrouted([s for s in found if s is not None])
        self._core.take_retained(list(transfer.retained))

    def _give(self, now: int, handover_source: HandoverSource, transfer: pb.Transfer) -> bool:
        state = handover_source.handle(now, transfer)
        if state is SourceState.DRAINING:
            self._update_grant(serving=False)
            handover_source.handle_timeout(now)
        elif state is SourceState.COMPLETE:
            self._state_machine.handle(ClaimEvent.TAKEN_BACK)
            self._diagnostics.add_event(Left(self.subtree))
            parent = self._parent_cut
            self._jurisdiction.remove_grant(self.subtree, parent)
            if parent is not None:
                self._context.delegations.release_below(self.subtree, parent)
                self._owner_subscriptions.subtree_moved(_after(parent), with_sessions=True)
                self._context.delegations.subtree_state.subtree_moved(self.subtree)
            self._stop()
        return state is not None

    @property
    def _parent_cut(self) -> Cut | None:
        """The subtree as a cut that the parent holds after this node."""
        if self._parent is None:
            return None
        return self.subtree, self.parent, self._parent, self._lease.epoch

    def _update_grant(self, *, serving: bool) -> None:
        self._lease.update_grant(self.link, serving=serving)

    # Endings

    def _handing_back_failed(self, now: int, handover_source: HandoverSource) -> None:
        """The parent is silent. Before COMMIT it cannot serve, so this node serves on and tries again. After
        COMMIT it is unknown whether the parent serves, so this node joins for the subtree and hands back what
        it gets."""
        self._handover_source = self._renew_at = None
        exported = handover_source.abandon()
        if not handover_source.has_committed and not self._lease.is_over(now):
            self._context.join_responder.open(self.subtree)
            self._enter(now, self._state_machine.handle(ClaimEvent.NOT_TAKEN))
            return
        self._keep_exported(exported)
        self._lose(now, self._state_machine.handle(ClaimEvent.UNDECIDED))

    def _keep_exported(self, exported: int) -> None:
        """Keeps this in place of what was kept before, which the parent has had since."""
        before, self._exported = self._exported, exported
        self._core.drop_held(before)

    def _fence(self, now: int) -> None:
        self._lose(now, self._state_machine.handle(ClaimEvent.FENCED))

    def _lose(self, now: int, state: ClaimState) -> None:
        """Stops serving, although no other node has taken the subtree over."""
        self._diagnostics.add_event(LeaseLost(self.subtree))
        missed = list(self._owner_subscriptions.connected_touching(self.subtree))
        self._context.recovery.handle_loss(now, missed)
        self._enter(now, state)

    def _enter_and_report(self, now: int, state: ClaimState) -> None:
        """As `_enter`. If the claim stops without its parent, reports that the lease is lost."""
        grant = self._jurisdiction.grant_of(self.subtree)
        if state is ClaimState.STOPPED and grant is not None and grant.serving:
            self._diagnostics.add_event(LeaseLost(self.subtree))
        self._enter(now, state)

    def _enter(self, now: int, state: ClaimState) -> None:
        """Enters the state after a failure."""
        if state is ClaimState.AWAIT_RENEWAL:
            self._update_grant(serving=True)
            self._retry_after(now, timers.retry_after(0, self._random))
            return
        self._stop()
        if state is ClaimState.STOPPED:
            self._keep_exported(0)
        if state is ClaimState.AWAIT_INVITATION:
            self._retry_after(now, timers.retry_after(self._attempt, self._random))

    def _stop(self) -> None:
        has_served = self._handover_target is None
        if self._handover_target is not None:
            self._handover_target.abandon()
        if self._handover_source is not None:
            self._core.drop_held(self._handover_source.abandon())
        self._handover_target = self._handover_source = None
        self._owes_done = self._done_is_queued = False
        self._retry_at = self._renew_at = None
        self.link = self._former = None
        self._join_requests.forget()
        lost, until = self._parent_cut, self._lease.until
        if self._lease.end():
            if has_served:
                self._context.delegations.end_lease(self.subtree, until)
            else:
                self._context.delegations.sweep()
            if lost is not None:
                self._owner_subscriptions.subtree_moved(_after(lost))

    def _close_link(self) -> None:
        """The parent has not granted. With a join key the link is closed, because the parent has not even
        proved the key: the next try begins a new one."""
        link, self.link = self.link, None
        self._join_requests.forget()
        if link is not None and self._settings.join_key:
            self._context.close_link(link)


def _after(cut: Cut) -> Cut:
    """§6.3: the cut under the next epoch, as subscribers are told it. A delegation that names this node is
    older."""
    subtree, node, address, epoch = cut
    return subtree, node, address, epoch + 1
