"""The subtrees that a node delegated, each from its first handover to its last lease (§5.4, §5.6).

A child's subtree goes through `DELEGATION`: handed over, held, handed back. The parent owns it until the
handover commits. From then on the child alone owns it, until it hands the subtree back or its lease ends. No
lease is granted that ends after the parent's own. So when a parent's subtree is taken back, nothing below it
is being served.

The cuts below a subtree go along with it: their owners stay, and their parent changes. The source keeps such
a cut until the target answers DONE. Then it tells the cut's owner where to renew, and forgets the cut. In
between it renews none of these leases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.context import NodeContext
from hbroker.protocol.events import ChildAway, ChildJoined, ChildLeft, TookBack
from hbroker.protocol.handover.phases import (
    HandoverSource,
    HandoverTarget,
    SourceState,
    TargetState,
    TransferSender,
)
from hbroker.protocol.handover.recovery import Recovery
from hbroker.protocol.handover.subtree_state import (
    HandoverParticipant,
    ReceivedState,
    SubtreeState,
    transfer_packets,
)
from hbroker.protocol.hierarchy.parent.delegation import DELEGATION, Child, DelegationEvent, DelegationState
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT, Delegation
from hbroker.protocol.packets import Cut, Reason, cut_of, pack
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.protocol.state_machine import StateMachine
from hbroker.protocol.subscriptions.owner.subscriptions import OwnerSubscriptions
from hbroker.protocol.timers import TimerQueue, earliest
from hbroker.subtree import is_within

__all__ = ["Delegations"]
MOST_FENCED: Final = 10_000
"""The most subtrees, of those taken back, whose epoch is remembered."""


class Delegations:
    """All subtrees that this node delegated. `children`: by subtree."""

    def __init__(
        self,
        context: NodeContext,
        owner_subscriptions: OwnerSubscriptions,
        recovery: Recovery,
        participants: Sequence[HandoverParticipant],
    ) -> None:
        self._own = (context.settings.name, context.settings.address)
        self._core = context.core
        self._jurisdiction = context.jurisdiction
        self._owner_subscriptions = owner_subscriptions
        self._recovery = recovery
        self._diagnostics = context.diagnostics
        self._after_sync = context.after_sync
        self.subtree_state = SubtreeState(context, owner_subscriptions, recovery, self.inherit, participants)
        """The state of this node that moves with a subtree."""
        self.children: dict[str, Child] = {}
        self._by_link: dict[int, dict[str, Child]] = {}
        # The three following tables are small: few of thousands of children are moving, and every request
        # needs them.
        self._unconfirmed: dict[str, Child] = {}
        """Children that have not sent DONE, with or without a link. This node keeps what it handed over."""
        self._handing_over: dict[str, Child] = {}
        self._handing_back: dict[str, Child] = {}
        self._ends: TimerQueue[str] = TimerQueue()
        """When to take each subtree back."""
        self._transfer_timers: TimerQueue[str] = TimerQueue()
        """When to send the next packets of each handover."""
        self._fenced: dict[str, int] = {}
        self.highest_epoch = 0

    # Change

    def restore(self, now: int, delegations: Iterable[Delegation]) -> None:
        """After a restart: counts each earlier delegation as held for one lease."""
        self.inherit(now, delegations)
        for child in self.children.values():
            child.saved_position = 0  # It is on the disk already.

    def inherit(self, now: int, delegations: Iterable[Delegation]) -> None:
        """Makes delegations of other nodes this node's own. Their last leases, whichever node granted them,
        end within one lease from now."""
        for delegation in delegations:
            if (delegation.node, delegation.address) == self._own:
                continue
            known = self.children.get(delegation.subtree)
            delegation.link = None
            if known is not None:
                if known.delegation.epoch > delegation.epoch:
                    continue
                self._abandon(known)
                is_same = known.delegation.epoch == delegation.epoch
                delegation.link = known.delegation.link if is_same else None
            delegation.until = now + timers.LEASE
            self.highest_epoch = max(self.highest_epoch, delegation.epoch)
            self._fenced.pop(delegation.subtree, None)
            child = Child(delegation, StateMachine(DELEGATION, DelegationState.HELD))
            if known is not None:
                child.exported, known.exported = known.exported, 0
            self._enter(child)
            self._cut(child)

    def forget_ended(self, subtree: str, received: ReceivedState) -> None:
        """The parent hands this node a subtree. Removes this node's earlier delegations out of it that do not
        exist any more, because the parent has served the subtree since (§5.4, old cuts); they would be in the
        way. Delegations out of a smaller subtree that another parent granted stay."""
        for delegation in self._jurisdiction.cuts_below(subtree):
            grant = self._jurisdiction.enclosing_grant(delegation.subtree)
            is_of_it = grant is not None and grant.subtree == subtree
            if is_of_it and not received.confirms(delegation):
                child = self.children[delegation.subtree]
                self._abandon(child)
                self._advance(child, DelegationEvent.EXPIRED)
                self._forget(child)

    def admit(self, now: int, delegation: Delegation) -> Child:
        """Begins a delegation. `hand_over` or `adopt` follows."""
        before = self.children.get(delegation.subtree)
        child = Child(delegation, StateMachine(DELEGATION, DelegationState.HANDING_OVER))
        if before is not None:
            self._abandon(before)
            if before.has_served and before.delegation.incarnation == delegation.incarnation:
                self._drop_exported(before)
                self.subtree_state.drop_retained(delegation.subtree)
            child.exported, child.saved_position = before.exported, before.saved_position
            before.exported = 0
        self._enter(child)
        self.highest_epoch = max(self.highest_epoch, delegation.epoch)
        self._schedule(child)
        return child

    def hand_over(self, now: int, child: Child, *, has_restored_queues: bool = False) -> None:
        """Begins the handover of the subtree to the child. `has_restored_queues`: the child, if it was
        restarted, restored the messages that waited for sessions in its run before."""
        delegation = child.delegation
        assert delegation.link is not None
        if self._jurisdiction.delegation_of(delegation.subtree) is not None:
            child.is_first = False
            if not has_restored_queues:
                self._owner_subscriptions.interrupt(delegation.subtree)
            # The child was restarted: nobody serves the subtree now, and only the cut changes.
            self._cut(child)
        child.handover_source = self._give(child, delegation.link)
        child.handover_source.begin(now)
        self._plan(child)

    def adopt(self, now: int, child: Child) -> None:
        """The child serves already. Sends it the records that this node took in by mistake."""
        delegation = child.delegation
        assert delegation.link is not None
        self._cut(child)
        excluded = self._jurisdiction.subtrees_granted_below(delegation.subtree)
        retained = self._core.retained(delegation.subtree, excluded)
        records = [*self.subtree_state.subscription_records(delegation.subtree), *retained]
        child.misrouted_records = TransferSender(
            self._core, delegation.subtree, delegation.epoch, delegation.link
        )
        child.misrouted_records.add(transfer_packets(records))
        child.misrouted_records.handle_timeout(now)
        self._plan(child)
        # The child informs these subscribers, too, but not over a link of an earlier run of a client.
        self._owner_subscriptions.subtree_moved(delegation.as_cut())
        self._core.drop_retained(delegation.subtree, excluded)
        self._advance(child, DelegationEvent.ADOPTED)
        self._joined(child)

    def renew(self, child: Child, link: int, until: int) -> None:
        """The child's lease is renewed, over this link. If this is another link than before, DONE follows
        over it."""
        delegation = child.delegation
        if delegation.link != link:
            self._abandon(child)
            self._set_link(child, link)
            child.has_served = True
        delegation.until = max(delegation.until, until)
        self._schedule(child)

    def handle_transfer(self, now: int, link: int, transfer: pb.Transfer) -> None:
        """Handles TRANSFER of a child, in a handover in either direction."""
        child = self.children.get(transfer.subtree)
        expected = False
        if child is not None and child.delegation.link == link:
            if child.handover_source is not None:
                expected = self._handle_given(now, child, child.handover_source, transfer)
            elif child.handover_target is not None:
                expected = self._handle_taken(now, child, child.handover_target, transfer)
            elif transfer.phase == pb.TRANSFER_PHASE_DONE and transfer.epoch == child.delegation.epoch:
                self._handle_done(child)
                expected = True
        if not expected:
            self._diagnostics.drop("unexpected_packet")

    def handle_leave(self, link: int, leave: pb.Leave) -> None:
        """A child begins to hand a subtree back."""
        child = self.children.get(leave.subtree)
        known = child is not None and (child.delegation.link, child.delegation.epoch) == (link, leave.epoch)
        is_ours = child is not None and self._jurisdiction.future_parent_of(child.delegation) is None
        if (
            child is None
            or not known
            or not is_ours
            or not child.may_serve
            or not child.state_machine.accepts(DelegationEvent.LEAVE)
        ):
            self._diagnostics.drop("unexpected_packet")
            return
        self._abandon(child)
        self._advance(child, DelegationEvent.LEAVE)
        child.has_served = True
        child.handover_target = HandoverTarget(
            self._core, self.subtree_state, leave.subtree, leave.epoch, link
        )
        self._plan(child)

    def handle_link_down(self, link: int) -> None:
        """A link to a child ended. Its leases go on; a handover under way ends."""
        for child in list(self._by_link.get(link, {}).values()):
            self._lose_link(child)

    def give_up(self, subtree: str) -> None:
        """This node hands a subtree back: aborts the handovers below it that have not committed. A cut alone
        goes along with the subtree, without the rest of such a handover."""
        for child in [c for s, c in self._handing_over.items() if is_within(s, subtree)]:
            if not child.may_serve:
                self._abort_handover(child)

    def release_below(self, subtree: str, parent: Cut) -> None:
        """The cuts below a subtree have another parent now. Tells their owners, which renew there. The new
        parent's own cuts have become a part of its subtree (§5.1)."""
        for delegation in self._jurisdiction.cuts_moving_with(subtree):
            is_parents = (delegation.node, delegation.address) == parent[1:3]
            if is_parents and self._jurisdiction.future_parent_of(delegation) is not None:
                continue  # Another node is the parent of this cut, and tells its owner.
            self._reparented(self.children[delegation.subtree])
            if delegation.link is not None and not is_parents:
                self._send_parent(delegation.link, delegation.subtree, parent)

    def raise_epoch(self, epoch: int) -> None:
        """Later epochs of this node are above this one, which another node granted it."""
        self.highest_epoch = max(self.highest_epoch, epoch)

    def holder_of_name(self, link: int) -> str | None:
        """The node that holds its own subtree below `$SYS` over this link; None: there is none."""
        child = next(iter(self._by_link.get(link, {}).values()), None)
        name = "" if child is None else child.delegation.node
        named = self.children.get(f"{STATUS_ROOT}/{name}")
        return name if named is not None and named.delegation.link == link else None

    def handle_timeout(self, now: int) -> None:
        """Takes back the subtrees whose leases have ended, and goes on with the handovers."""
        for subtree in self._ends.due(now):
            self._expire(now, self.children[subtree])
        for subtree in list(self._transfer_timers.due(now)):
            child = self.children.get(subtree)
            if child is None:  # An earlier child of this round has ended it.
                continue
            child.handle_timeout(now)
            self._plan(child)
            if child.handover_source is not None and child.handover_source.is_held_up(now):
                self._abort_handover(child)

    def handle_subscription_changed(self, subscription: Subscription, ended: bool) -> None:
        """A subscription changed: sends the change in the handovers under way."""
        for child in list(self._handing_over.values()):
            if child.handover_source is not None:
                child.handover_source.handle_subscription_changed(subscription, ended)
                self._plan(child)

    def end_lease(self, subtree: str, until: int | None) -> None:
        """The lease of a subtree ended, at `until` at the latest: keeps persistent sessions, with their
        subscriptions and queues, and wills, and discards the rest (§5.6)."""
        self.subtree_state.end_lease(subtree, until, list(self._unconfirmed))

    def sweep(self) -> None:
        """A grant ended without a handover: discards what concerns nothing that is left, or that is being
        handed over."""
        self.subtree_state.sweep(list(self._unconfirmed))

    # Read

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return earliest(self._ends.next(), self._transfer_timers.next())

    @property
    def pending(self) -> Sequence[Delegation]:
        """The delegations that are being handed over, until DONE."""
        return [child.delegation for child in self._unconfirmed.values()]

    def fenced(self, subtree: str) -> int:
        """The lowest epoch that still counts for a subtree that was taken back; 0: any."""
        return self._fenced.get(subtree, 0)

    def is_cut(self, child: Child) -> bool:
        """Whether the child's subtree is delegated: the handover has come so far that this node does not
        serve it."""
        return self._jurisdiction.delegation_of(child.delegation.subtree) is child.delegation

    def is_saved(self, child: Child) -> bool:
        """Whether the next run of this node knows that the subtree is delegated. If it did not, both would
        serve it."""
        return child.saved_position is not None and self._after_sync.is_durable(child.saved_position)

    def moving_below(self, subtree: str) -> list[Child]:
        """The children that are handing back a subtree below this one, or have been sent one and not answered
        DONE."""
        sent = (child for child in self._handing_over.values() if child.may_serve)
        moving = [*self._handing_back.values(), *sent]
        subtrees = ((child.delegation.subtree, child) for child in moving)
        return [child for s, child in subtrees if s != subtree and is_within(s, subtree)]

    def overtake(self, child: Child) -> None:
        """The subtree around a child's goes to another owner: the child's handing back ends."""
        self._abandon(child)
        self._advance(child, DelegationEvent.OVERTAKEN)

    def overtake_below(self, subtree: str) -> None:
        """Does so for all children that are handing back a subtree below this one."""
        for child in self.moving_below(subtree):
            if child.is_handing_back:
                self.overtake(child)

    # Handing over

    def _give(self, child: Child, link: int) -> HandoverSource:
        delegation = child.delegation
        return HandoverSource(
            self._core,
            self.subtree_state,
            delegation.subtree,
            delegation.epoch,
            link,
            self,
            child.exported,
            is_former_owner=not child.is_first,
            is_saved=lambda: self.is_saved(child),
        )

    def _handle_given(
        self, now: int, child: Child, handover_source: HandoverSource, transfer: pb.Transfer
    ) -> bool:
        state = handover_source.handle(now, transfer)
        if state is SourceState.DRAINING:
            self._extend_lease(child)
            self._cut(child)
            handover_source.handle_timeout(now)
        elif state is SourceState.COMPLETE:
            self._abandon(child)
            self._handle_done(child)
        self._plan(child)
        return state is not None

    def _abort_handover(self, child: Child) -> None:
        """This node serves the subtree on. It closes the link, so the child learns it and joins again. If the
        link has other subtrees, too, the child's next renewal is refused."""
        link = child.delegation.link
        if link is None:
            return
        if len(self._by_link[link]) > 1:
            self._fence(child)
            self._lose_link(child)
        else:
            self._core.close(link)
            self.handle_link_down(link)

    def _lose_link(self, child: Child) -> None:
        self._set_link(child, None)
        had_a_chance = child.may_serve or not child.is_first
        self._abandon(child)
        child.inherited_delegations = []
        if self.is_cut(child) and not had_a_chance:
            self._jurisdiction.take_back(child.delegation.subtree)
        if self.is_cut(child):
            self._advance(child, DelegationEvent.LINK_LOST)
            self._diagnostics.add_event(ChildAway(child.delegation.subtree, child.delegation.node))
        else:
            self._cancel(child)

    def _extend_lease(self, child: Child) -> None:
        """Extends the lease of a subtree to the end of the leases below it: if it is taken back, what lies
        below is, too."""
        delegation = child.delegation
        along = self._jurisdiction.cuts_moving_with(delegation.subtree)
        delegation.until = max([delegation.until, *(d.until for d in along)])

    def _handle_done(self, child: Child) -> None:
        """The child serves, and its next run will know what was handed over.

        Until now this node kept everything that moved: if the child had died before, its next run would get
        it again. A child sends DONE again over each new link; then only the cuts below may be news: this node
        may have restarted, or got them from another parent.
        """
        delegation = child.delegation
        is_first_done = child.state_machine.accepts(DelegationEvent.DONE)
        self._drop_exported(child)
        if is_first_done:
            self._advance(child, DelegationEvent.DONE)
        self.release_below(delegation.subtree, delegation.as_cut())
        if not is_first_done:
            self.subtree_state.drop_retained(delegation.subtree)
            return
        self._owner_subscriptions.subtree_moved(delegation.as_cut(), with_sessions=True)
        self.subtree_state.subtree_moved(delegation.subtree)
        self._joined(child)

    def _send_parent(self, link: int, subtree: str, parent: Cut) -> None:
        ack = pb.JoinAck(reason=Reason.REASON_HANDOVER, subtree=subtree, holder=cut_of(parent))
        self._core.send(link, pack(ack))

    def _cut(self, child: Child) -> None:
        self._jurisdiction.delegate(child.delegation)
        if child.is_first or child.saved_position is None:
            child.saved_position = self._after_sync.last_position()
        self._schedule(child)

    # Taking back

    def _handle_taken(
        self, now: int, child: Child, handover_target: HandoverTarget, transfer: pb.Transfer
    ) -> bool:
        state = handover_target.handle(transfer)
        if state is TargetState.AWAIT_COMMIT and child.delegation.policy is LeasePolicy.SERVE:
            # The child leaves, so it will not go on by itself. Its own children may.
            child.delegation.policy = LeasePolicy.FENCE
            child.inherited_delegations = [
                d
                for d in handover_target.received.delegations(transfer.subtree)
                if d.policy is LeasePolicy.SERVE
            ]
            self._schedule(child)
        elif state is TargetState.COMPLETE:
            child.handover_target = None
            self._plan(child)
            self._advance(child, DelegationEvent.COMMITTED)
            subtree, node = child.delegation.subtree, child.delegation.node
            self._release_unnamed(subtree, handover_target.received)
            self.subtree_state.install_state(now, handover_target.received)
            if handover_target.received.refused:
                self._diagnostics.drop("too_many_records", handover_target.received.refused)
            self._forget(child)
            self.sweep()
            # If too many actions wait, DONE is not sent: the child's handing back fails, and it joins for the
            # subtree and hands it back again.
            if not self._after_sync.run_when_durable(handover_target.send_done):
                self._diagnostics.count("dones_not_sent")
            self._diagnostics.add_event(ChildLeft(subtree, node))
        return state is not None

    def _release_unnamed(self, subtree: str, received: ReceivedState) -> None:
        """A child has handed a subtree back, and had not sent DONE: removes the cuts below it that this node
        kept, and that have ended since, or have become a part of the child's subtree (§5.1)."""
        for delegation in self._jurisdiction.cuts_moving_with(subtree):
            if delegation.subtree not in received.cuts:
                self._reparented(self.children[delegation.subtree])

    def _reparented(self, child: Child) -> None:
        """The subtree has another parent now, or is a part of another subtree."""
        subtree = child.delegation.subtree
        self._abandon(child)
        self._drop(subtree)
        self.subtree_state.drop_retained(subtree)
        self._advance(child, DelegationEvent.REPARENTED)
        self._jurisdiction.take_back(subtree)

    def _expire(self, now: int, child: Child) -> None:
        """Takes a subtree back whose owner's lease ended.

        If its handover failed after COMMIT, what waited for its subscribers waits here again. If the subtree
        around it is this node's delegation, too, its holder renews the lease (§5.4). Then the cut is kept
        until the holder sends DONE, or until the holder's lease ends, and with it the leases below.
        """
        holder = self._jurisdiction.future_parent_of(child.delegation)
        if self.is_cut(child) and holder is not None and holder.subtree in self.children:
            return
        self._abandon(child)
        self._advance(child, DelegationEvent.EXPIRED)
        delegation = child.delegation
        around = self._jurisdiction.lookup_above(delegation.subtree)
        is_ours = self.is_cut(child) and not isinstance(around, Delegation)
        if self.is_cut(child):
            for below in self._jurisdiction.cuts_moving_with(delegation.subtree):
                kept = self.children[below.subtree]
                self._abandon(kept)
                self._advance(kept, DelegationEvent.EXPIRED)
                self._forget(kept)
        self.inherit(now, child.inherited_delegations)
        exported, child.exported = child.exported, 0
        if is_ours:  # Before the cut ends, because from then on messages are accepted here.
            self._recovery.handle_take_back(now, delegation.subtree, delegation.epoch)
        self._forget(child)
        if exported:
            self._core.install(exported)
        if is_ours:
            self._owner_subscriptions.interrupt(delegation.subtree)
            self._diagnostics.add_event(TookBack(delegation.subtree, delegation.node))

    def _forget(self, child: Child) -> None:
        subtree = child.delegation.subtree
        self._drop(subtree)
        self._jurisdiction.take_back(subtree)
        self._fence(child)

    def _fence(self, child: Child) -> None:
        """Refuses further renewals of this delegation."""
        subtree, epoch = child.delegation.subtree, child.delegation.epoch + 1
        self._fenced.pop(subtree, None)
        self._fenced[subtree] = epoch
        self.highest_epoch = max(self.highest_epoch, epoch)
        if len(self._fenced) > MOST_FENCED:
            del self._fenced[next(iter(self._fenced))]

    def _cancel(self, child: Child) -> None:
        self._advance(child, DelegationEvent.CANCELLED)
        self._drop(child.delegation.subtree)

    def _drop(self, subtree: str) -> None:
        self._ends.cancel(subtree)
        for some in (self._unconfirmed, self._handing_over, self._handing_back):
            some.pop(subtree, None)
        child = self.children.pop(subtree)
        self._drop_exported(child)
        self._leave_link(child)

    def _drop_exported(self, child: Child) -> None:
        exported, child.exported = child.exported, 0
        if exported:
            self._core.drop_held(exported)

    def _enter(self, child: Child) -> None:
        """Makes this the child of its subtree, in place of the one before."""
        subtree, link = child.delegation.subtree, child.delegation.link
        before = self.children.get(subtree)
        if before is not None:
            self._leave_link(before)
        self.children[subtree] = child
        self._note_state(child)
        self._set_link(child, link)

    def _advance(self, child: Child, event: DelegationEvent) -> None:
        child.state_machine.handle(event)
        if self.children.get(child.delegation.subtree) is child:
            self._note_state(child)

    def _note_state(self, child: Child) -> None:
        if child.is_unconfirmed:
            self._unconfirmed[child.delegation.subtree] = child
        else:
            self._unconfirmed.pop(child.delegation.subtree, None)

    def _set_link(self, child: Child, link: int | None) -> None:
        """The child has this link from now on. Its events come before those of clients (§3.3)."""
        self._leave_link(child)
        child.delegation.link = link
        if link is not None:
            self._by_link.setdefault(link, {})[child.delegation.subtree] = child
            self._core.prioritise(link)

    def _leave_link(self, child: Child) -> None:
        link, subtree = child.delegation.link, child.delegation.subtree
        held = {} if link is None else self._by_link.get(link, {})
        if held.get(subtree) is child:
            del held[subtree]
            if not held and link is not None:
                del self._by_link[link]

    def _abandon(self, child: Child) -> None:
        child.abandon()
        self._plan(child)

    def _plan(self, child: Child) -> None:
        """Updates the tables and timers after every change of a child's handover."""
        due, subtree = child.poll_timeout(), child.delegation.subtree
        for some, part in (
            (self._handing_over, child.handover_source),
            (self._handing_back, child.handover_target),
        ):
            if part is None:
                some.pop(subtree, None)
            else:
                some[subtree] = child
        self._transfer_timers.set(subtree, due)

    def _schedule(self, child: Child) -> None:
        """§5.6: under `serve` a subtree that was handed over is never taken back by itself."""
        delegation = child.delegation
        if delegation.policy is LeasePolicy.FENCE or not self.is_cut(child):
            self._ends.set(delegation.subtree, delegation.until + timers.LEASE_DRIFT)
        else:
            self._ends.cancel(delegation.subtree)

    def _joined(self, child: Child) -> None:
        d = child.delegation
        self._diagnostics.add_event(ChildJoined(d.subtree, d.node, d.address, d.epoch))
