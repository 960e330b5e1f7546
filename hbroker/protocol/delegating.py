"""A node as a parent: it grants subtrees, keeps their leases, and takes back what is left (§5.1, §5.6).

A child's subtree goes through `DELEGATION`: handed over, held, handed back. Until the handover commits the
parent owns it; from then on only the child does, until it hands it back or its lease ends. No lease is
granted that outlives the parent's own, so whoever takes back a parent's subtree finds everything below it
at rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy, NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.admission import Admitted, Applicant, Below, Turned, applicant_from, credential, judge
from hbroker.protocol.agenda import Agenda
from hbroker.protocol.core import NodeCore
from hbroker.protocol.gathering import Gathering
from hbroker.protocol.handover import Giving, GivingState, Taking, TakingState, send_records
from hbroker.protocol.inquiry import Inquiry
from hbroker.protocol.jurisdiction import Delegation, Grant, Jurisdiction
from hbroker.protocol.machine import Machine
from hbroker.protocol.notices import ChildAway, ChildJoined, ChildLeft, Ledger, TookBack
from hbroker.protocol.packets import Address, Reason, address_of, cut_of, pack
from hbroker.protocol.subscribers import Subscription, record_of
from hbroker.protocol.subscribing import Subscribing

__all__ = ["DELEGATION", "Delegating", "DelegationEvent", "DelegationState"]

EPOCHS_AHEAD: Final = 24 * 3600 * 1000
"""An epoch so far ahead of this node's clock, in milliseconds, was granted by nobody: it is forged."""
MOST_FENCED: Final = 10_000
"""Subtrees taken back whose epoch is remembered."""


class DelegationState(Enum):
    HANDING_OVER = auto()
    HELD = auto()
    TAKING_BACK = auto()
    GONE = auto()


class DelegationEvent(Enum):
    ADOPTED = auto()
    """A renewal for a subtree that this node, restarted, did not know as delegated."""
    DONE = auto()
    LINK_LOST = auto()
    CANCELLED = auto()
    """The link was lost before the cut was made."""
    LEAVE = auto()
    COMMITTED = auto()
    EXPIRED = auto()


DELEGATION: Final = {
    (DelegationState.HANDING_OVER, DelegationEvent.ADOPTED): DelegationState.HELD,
    (DelegationState.HANDING_OVER, DelegationEvent.DONE): DelegationState.HELD,
    (DelegationState.HANDING_OVER, DelegationEvent.LINK_LOST): DelegationState.HANDING_OVER,
    (DelegationState.HANDING_OVER, DelegationEvent.CANCELLED): DelegationState.GONE,
    (DelegationState.HANDING_OVER, DelegationEvent.EXPIRED): DelegationState.GONE,
    (DelegationState.HELD, DelegationEvent.LINK_LOST): DelegationState.HELD,
    (DelegationState.HELD, DelegationEvent.LEAVE): DelegationState.TAKING_BACK,
    (DelegationState.HELD, DelegationEvent.EXPIRED): DelegationState.GONE,
    (DelegationState.TAKING_BACK, DelegationEvent.LINK_LOST): DelegationState.HELD,
    (DelegationState.TAKING_BACK, DelegationEvent.COMMITTED): DelegationState.GONE,
    (DelegationState.TAKING_BACK, DelegationEvent.EXPIRED): DelegationState.GONE,
}


@dataclass(slots=True)
class _Child:
    """One delegation under way or made."""

    delegation: Delegation
    machine: Machine[DelegationState, DelegationEvent]
    giving: Giving | None = None
    taking: Taking | None = None


class Delegating:
    """The parent's side of every subtree delegated by this node.

    `epoch_at(now)`: the least epoch to grant (§5.1).
    """

    def __init__(
        self,
        settings: NodeSettings,
        address: Address,
        core: NodeCore,
        jurisdiction: Jurisdiction,
        subscribing: Subscribing,
        gathering: Gathering,
        ledger: Ledger,
        epoch_at: Callable[[int], int],
    ) -> None:
        self._settings = settings
        self._address = address
        self._core = core
        self._jurisdiction = jurisdiction
        self._subscribing = subscribing
        self._gathering = gathering
        self._ledger = ledger
        self._epoch_at = epoch_at
        self._children: dict[str, _Child] = {}
        self._ends: Agenda[str] = Agenda()
        """When to take each subtree back."""
        self._fenced: dict[str, int] = {}
        self._is_leaving = False
        self._highest_epoch = 0

    # Change

    def restore(self, now: int, delegations: Iterable[Delegation]) -> None:
        """After a restart: what was delegated before is taken to be held, for as long as a lease may last."""
        for delegation in delegations:
            delegation.link = None
            delegation.until = now + timers.LEASE
            self._highest_epoch = max(self._highest_epoch, delegation.epoch)
            self._children[delegation.subtree] = _Child(delegation, Machine(DELEGATION, DelegationState.HELD))
            self._delegate(self._children[delegation.subtree])

    def handle_join(self, now: int, inquiry: Inquiry, join: pb.Join) -> None:
        """A JOIN is answered with an invitation; within a session, with a grant."""
        applicant = applicant_from(join)
        if applicant is None:
            self._turn(inquiry, join, Turned(Reason.REASON_PROTOCOL_ERROR))
        elif credential(self._settings.join_key, join) != join.credential:
            self._turn(inquiry, join, Turned(Reason.REASON_NOT_AUTHORIZED))
        elif applicant.epoch > self._epoch_at(now) + EPOCHS_AHEAD:
            self._turn(inquiry, join, Turned(Reason.REASON_PROTOCOL_ERROR))
        else:
            self._decide(now, inquiry, join, applicant)

    def handle_transfer(self, link: int, transfer: pb.Transfer) -> None:
        """The child's part of a handover, in either direction."""
        child = self._children.get(transfer.subtree)
        if child is None or child.delegation.link != link:
            self._ledger.drop("unexpected_packet")
        elif child.giving is not None:
            self._hand_over(child, child.giving, transfer)
        elif child.taking is not None:
            self._take_back(child, child.taking, transfer)
        else:
            self._ledger.drop("unexpected_packet")

    def handle_leave(self, link: int, leave: pb.Leave) -> None:
        """A child begins to hand a subtree back."""
        child = self._children.get(leave.subtree)
        known = child is not None and (child.delegation.link, child.delegation.epoch) == (link, leave.epoch)
        if child is None or not known or not child.machine.accepts(DelegationEvent.LEAVE):
            self._ledger.drop("unexpected_packet")
            return
        child.machine.handle(DelegationEvent.LEAVE)
        child.delegation.policy = LeasePolicy.FENCE  # It will not go on by itself: it leaves.
        self._schedule(child)
        child.taking = Taking(self._core, leave.subtree, leave.epoch, link)

    def handle_link_down(self, link: int) -> None:
        """The lease goes on without the link; a handover does not."""
        for child in [c for c in self._children.values() if c.delegation.link == link]:
            child.delegation.link = None
            self._abandon(child)
            if self._is_cut(child):
                child.machine.handle(DelegationEvent.LINK_LOST)
                self._ledger.note(ChildAway(child.delegation.subtree, child.delegation.node))
            else:
                self._cancel(child)

    def leave(self) -> None:
        """This node hands back what it owns: it delegates nothing more of it, or two would own it (§5.4)."""
        self._is_leaving = True
        for child in [c for c in self._children.values() if not self._is_cut(c)]:
            self._abandon(child)
            self._cancel(child)

    def handle_timeout(self, now: int) -> None:
        """Takes back what outlived its lease."""
        for subtree in self._ends.due(now):
            self._expire(now, self._children[subtree])

    def follow(self, subscription: Subscription, ended: bool) -> None:
        """A subscription changed: the handovers under way hear of it."""
        for child in self._children.values():
            if child.giving is not None:
                child.giving.follow(subscription, ended)

    # Read

    def poll_timeout(self) -> int | None:
        return self._ends.next()

    # Joining

    def _decide(self, now: int, inquiry: Inquiry, join: pb.Join, applicant: Applicant) -> None:
        parent = inquiry.parent_link
        is_stray = parent is not None and not self._jurisdiction.holds_from(parent, applicant.subtree)
        if is_stray or self._is_leaving:
            self._turn(inquiry, join, Turned(Reason.REASON_NOT_SERVING))
            return
        pending = [c.delegation for c in self._children.values() if not self._is_cut(c)]
        verdict = judge(applicant, self._jurisdiction, pending)
        match verdict:
            case Turned():
                self._turn(inquiry, join, verdict)
            case Below():
                self._pass_down(inquiry, join, verdict.delegation)
            case Admitted() if applicant.subtree not in self._children and self._is_full:
                self._turn(inquiry, join, Turned(Reason.REASON_QUOTA_EXCEEDED))
            case Admitted() if self._lease(now, verdict.grant) <= 2 * timers.LEASE_DRIFT:
                self._turn(inquiry, join, Turned(Reason.REASON_NOT_SERVING))
            case Admitted() if applicant.policy is LeasePolicy.SERVE and verdict.grant.until is not None:
                # §5.6: what this node must give up, a child of it cannot go on with.
                self._turn(inquiry, join, Turned(Reason.REASON_NOT_AUTHORIZED))
            case Admitted() if inquiry.session_link is None:
                inquiry.answer(self._core, self._joinack(join, inquiry.origin))
            case Admitted():
                self._admit(now, inquiry.session_link, join, applicant, verdict.grant)

    def _admit(self, now: int, link: int, join: pb.Join, applicant: Applicant, grant: Grant) -> None:
        child = self._children.get(applicant.subtree)
        lease = self._lease(now, grant)
        if applicant.epoch:
            held = 0 if child is None else child.delegation.epoch
            if applicant.epoch < max(held, self._fenced.get(applicant.subtree, 0)):
                self._turn(Inquiry(applicant.address, session_link=link), join, _STALE)
                return
            if child is not None and held == applicant.epoch:
                self._renew(now, child, link, join, applicant, lease)
                return
        if child is not None:
            self._abandon(child)
        epoch = applicant.epoch or self._next_epoch(now, grant)
        delegation = Delegation(
            applicant.subtree,
            applicant.node,
            applicant.address,
            applicant.incarnation,
            epoch,
            applicant.policy,
            link,
            now + lease,
        )
        child = _Child(delegation, Machine(DELEGATION, DelegationState.HANDING_OVER))
        self._children[applicant.subtree] = child
        self._schedule(child)
        self._highest_epoch = max(self._highest_epoch, epoch)
        self._grant(link, join, delegation, lease)
        if applicant.epoch:
            self._adopt(child)
        else:
            self._begin(child, link)

    def _renew(
        self, now: int, child: _Child, link: int, join: pb.Join, applicant: Applicant, lease: int
    ) -> None:
        delegation = child.delegation
        if child.machine.state is DelegationState.TAKING_BACK:
            self._ledger.drop("unexpected_packet")
            return
        if delegation.link != link and not self._is_cut(child):
            self._turn(Inquiry(applicant.address, session_link=link), join, _STALE)
            return
        if delegation.link != link:
            self._abandon(child)
            if child.machine.accepts(DelegationEvent.DONE):  # It was lost: who renews elsewhere, serves.
                self._arrived(child)
        delegation.link = link
        delegation.until = now + lease
        delegation.incarnation = applicant.incarnation
        delegation.policy = applicant.policy
        self._schedule(child)
        self._grant(link, join, delegation, lease)

    def _begin(self, child: _Child, link: int) -> None:
        delegation = child.delegation
        if self._jurisdiction.delegation_of(delegation.subtree) is not None:
            self._delegate(child)  # A restart: nobody serves it now, the cut only changes.
        child.giving = Giving(self._core, delegation.subtree, delegation.epoch, link)
        child.giving.begin([s for _, s in self._subscribing.subscribers.touching(delegation.subtree)])

    def _adopt(self, child: _Child) -> None:
        """The child serves already. It gets what was taken in by mistake meanwhile."""
        delegation = child.delegation
        assert delegation.link is not None
        self._delegate(child)
        records = [record_of(s) for _, s in self._subscribing.subscribers.touching(delegation.subtree)]
        retained = self._core.retained(delegation.subtree)
        send_records(self._core, delegation.link, delegation.subtree, delegation.epoch, records, retained)
        self._core.drop_retained(delegation.subtree)
        child.machine.handle(DelegationEvent.ADOPTED)
        self._joined(child)

    def _hand_over(self, child: _Child, giving: Giving, transfer: pb.Transfer) -> None:
        match giving.handle(transfer):
            case GivingState.AWAIT_DONE:
                self._delegate(child)
                giving.commit()
            case GivingState.COMPLETE:
                self._arrived(child)
            case _:
                self._ledger.drop("unexpected_packet")

    def _arrived(self, child: _Child) -> None:
        """The child serves.

        Until this is known its subscriptions stay here too: if it died before, its next run gets them.
        """
        child.giving = None
        child.machine.handle(DelegationEvent.DONE)
        self._subscribing.moved(child.delegation.as_cut())
        self._joined(child)

    def _delegate(self, child: _Child) -> None:
        self._jurisdiction.delegate(child.delegation)
        self._schedule(child)

    # Taking back

    def _take_back(self, child: _Child, taking: Taking, transfer: pb.Transfer) -> None:
        state = taking.handle(transfer)
        if state is None:
            self._ledger.drop("unexpected_packet")
        elif state is TakingState.COMPLETE:
            child.machine.handle(DelegationEvent.COMMITTED)
            subtree, node = child.delegation.subtree, child.delegation.node
            self._subscribing.take_over(taking.subscriptions)
            self._forget(child)
            self._subscribing.sweep()
            taking.done()
            self._ledger.note(ChildLeft(subtree, node))

    def _expire(self, now: int, child: _Child) -> None:
        self._abandon(child)
        child.machine.handle(DelegationEvent.EXPIRED)
        was_cut = self._is_cut(child)
        self._forget(child)
        if was_cut:
            self._gathering.handle_take_back(now, child.delegation.subtree, child.delegation.epoch)
            self._ledger.note(TookBack(child.delegation.subtree, child.delegation.node))

    def _forget(self, child: _Child) -> None:
        subtree = child.delegation.subtree
        del self._children[subtree]
        self._ends.cancel(subtree)
        self._jurisdiction.take_back(subtree)
        self._fenced.pop(subtree, None)
        self._fenced[subtree] = child.delegation.epoch + 1
        self._highest_epoch = max(self._highest_epoch, child.delegation.epoch + 1)
        if len(self._fenced) > MOST_FENCED:
            del self._fenced[next(iter(self._fenced))]

    def _cancel(self, child: _Child) -> None:
        child.machine.handle(DelegationEvent.CANCELLED)
        del self._children[child.delegation.subtree]
        self._ends.cancel(child.delegation.subtree)

    def _abandon(self, child: _Child) -> None:
        child.giving = None
        if child.taking is not None:
            child.taking.abandon()
            child.taking = None

    # Answers

    def _pass_down(self, inquiry: Inquiry, join: pb.Join, below: Delegation) -> None:
        origin = inquiry.onward()
        if inquiry.session_link is not None:
            self._turn(inquiry, join, Turned(Reason.REASON_OUTSIDE_JURISDICTION, below))
        elif below.link is None:
            self._turn(inquiry, join, Turned(Reason.REASON_OWNER_UNREACHABLE, below))
        elif origin is None:
            self._ledger.drop("too_many_hops")
        else:
            onward = pb.Join()
            onward.CopyFrom(join)
            onward.origin.CopyFrom(origin)
            self._core.send(below.link, pack(onward))

    def _turn(self, inquiry: Inquiry, join: pb.Join, turned: Turned) -> None:
        ack = self._joinack(join, inquiry.origin)
        ack.reason = turned.reason
        if turned.holder is not None:
            ack.holder.CopyFrom(cut_of(turned.holder.as_cut()))
        self._ledger.count("joins_refused")
        inquiry.answer(self._core, ack)

    def _grant(self, link: int, join: pb.Join, delegation: Delegation, lease: int) -> None:
        ack = self._joinack(join, delegation.address)
        ack.epoch = delegation.epoch
        ack.lease_ms = lease // 1000
        self._core.send(link, pack(ack))

    def _joinack(self, join: pb.Join, joiner: Address) -> pb.JoinAck:
        return pb.JoinAck(
            request=join.request,
            node=self._settings.name,
            address=address_of(self._address),
            subtree=join.subtree,
            token=self._core.token_for(joiner),
        )

    def _joined(self, child: _Child) -> None:
        d = child.delegation
        self._ledger.note(ChildJoined(d.subtree, d.node, d.address, d.epoch))

    # Time

    def _lease(self, now: int, grant: Grant) -> int:
        return timers.LEASE if grant.until is None else min(timers.LEASE, grant.until - now)

    def _next_epoch(self, now: int, grant: Grant) -> int:
        self._highest_epoch = max(self._epoch_at(now), self._highest_epoch + 1, grant.epoch + 1)
        return self._highest_epoch

    def _schedule(self, child: _Child) -> None:
        """§5.6: under `serve` a subtree that was handed over is never taken back by itself."""
        delegation = child.delegation
        if delegation.policy is LeasePolicy.FENCE or not self._is_cut(child):
            self._ends.set(delegation.subtree, delegation.until + timers.LEASE_DRIFT)
        else:
            self._ends.cancel(delegation.subtree)

    @property
    def _is_full(self) -> bool:
        return len(self._children) >= self._settings.limits.delegations

    def _is_cut(self, child: _Child) -> bool:
        return self._jurisdiction.delegation_of(child.delegation.subtree) is child.delegation


_STALE: Final = Turned(Reason.REASON_STALE_EPOCH)
