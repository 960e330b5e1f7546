"""A node as a child: one machine for each subtree that it claims (§5.1, §5.6).

It asks the root for its parent, opens a link there, takes the subtree over and then renews its lease. When
the link is lost it serves on while the lease lasts and asks again, the parent first and then the root,
because the parent may have gone for good. A parent that is no longer one names the new one (§5.4). What it
asks is in `joining`, how it asks the root in `asking`, what it holds in `tenure`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.events import Joined, LeaseLost, Left, NameTaken, PolicyLowered, Refused, Unproved
from hbroker.protocol.handover.handover import Giving, GivingState, Taking, TakingState
from hbroker.protocol.handover.transfer import Inheritance
from hbroker.protocol.hierarchy.child.context import Means
from hbroker.protocol.hierarchy.child.join_requests import Joins
from hbroker.protocol.hierarchy.child.lease_holder import Tenure
from hbroker.protocol.hierarchy.child.parent_discovery import Asking
from hbroker.protocol.hierarchy.child.uplink_states import UPLINK, UplinkEvent, UplinkState
from hbroker.protocol.hierarchy.jurisdiction import Grant
from hbroker.protocol.hierarchy.parent.admission import STATUS_ROOT
from hbroker.protocol.packets import Address, Cut, Reason, address_from, cut_from, pack
from hbroker.protocol.reasons import PASSING_REASONS
from hbroker.protocol.state_machine import Machine
from hbroker.protocol.subscriptions.owner.store import Subscription, subscription_from
from hbroker.protocol.timer_queue import earliest

__all__ = ["UPLINK", "Uplink", "UplinkEvent", "UplinkState"]

GRANT_WAIT: Final = 2 * timers.SECOND
"""How long a parent that invited may take to grant."""
LEAVE_WAIT: Final = 3 * timers.SECOND
"""How long a parent that takes a subtree back may be silent."""
COVERED_WAIT: Final = timers.SECOND
"""How often a claim that lies within what this node holds anyway sees whether it still does."""
REFUSED_WAIT: Final = 4
"""A refusal, or an answer that proves nothing, is like this many tries without one: the next is far off."""
FINAL_REASONS: Final = frozenset({Reason.REASON_NOT_AUTHORIZED, Reason.REASON_PROTOCOL_ERROR})


class Uplink:
    """One subtree's claim."""

    def __init__(self, subtree: str, means: Means) -> None:
        self.subtree: Final = subtree
        self._means = means
        self._settings = means.settings
        self._core = means.core
        self._jurisdiction = means.jurisdiction
        self._subscribing = means.subscribing
        self._ledger = means.ledger
        self._machine = Machine(UPLINK, UplinkState.AWAIT_INVITATION)
        self._parent: Address | None = None
        self._parent_name = ""
        self._link: int | None = None
        self._former: int | None = None
        """The link to the parent before, until the new one grants."""
        self._tenure = Tenure(subtree, means.jurisdiction)
        self._joins = Joins(subtree, means.settings, means.address, means.incarnation, means.random)
        self._asking = Asking(means, self._joins, self._tenure)
        self._attempt = 0
        self._retry_at: int | None = None
        self._renew_at: int | None = None
        """When to renew while the subtree is handed back: it may take longer than a lease (§5.4)."""
        self._taking: Taking | None = None
        self._taken: Taking | None = None
        """What was taken over, and waits for the disk before the parent is told (§5.10)."""
        self._done_waits = False
        """`AfterSync` has taken that."""
        self._giving: Giving | None = None
        self._hands_back = False
        """An order wants it back with its parent."""
        self._exported = 0
        """Where the core holds what waited for subscribers when it was handed back, and nobody knows whether
        the parent has it; 0: nothing."""
        self.refused: pb.JoinAck | None = None
        """The last refusal since it last served."""

    # Change

    def start(self, now: int) -> None:
        self._ask_root(now)

    def handle_challenge(self, now: int, source: Address, challenge: pb.Challenge) -> None:
        """The root wants proof of this address: the request goes again, with it."""
        asks = self._machine.state in (UplinkState.AWAIT_INVITATION, UplinkState.AWAIT_RENEWAL)
        if source == self._means.root and asks:
            self._asking.obey(now, challenge.token)

    def handle_joinack(self, now: int, link: int | None, ack: pb.JoinAck) -> bool:
        """Whether it answers a JOIN of this machine.

        An invitation comes outside of a session, a grant within. From the parent it may also come unasked:
        another node is the parent now.
        """
        if not ack.request and ack.reason == Reason.REASON_HANDOVER:
            return self._is_from_parent(link, ack) and self._follow(now, ack)
        if not self._joins.is_open(ack.request) or ack.subtree != self.subtree:
            return False
        if link is None and not self._asking.is_proved(ack):
            self._doubt(now)
            return True
        sent = self._joins.answered(ack.request)
        assert sent is not None
        if link is None and self._settings.join_key and ack.nonce not in (0, sent.nonce):
            self._prove(now, ack.nonce)
        elif ack.reason != Reason.REASON_SUCCESS:
            self._refused(now, ack)
        elif link is None:
            self._invited(now, ack)
        elif link == self._link and ack.epoch:
            self._granted(now, sent.at, link, ack)
        return True

    def handle_transfer(self, now: int, link: int, transfer: pb.Transfer) -> bool:
        """Whether it was due: the parent's part of a handover, in either direction."""
        if link != self._link or transfer.epoch != self._tenure.epoch:
            return False
        if self._taking is not None:
            return self._take(now, self._taking, transfer)
        if self._giving is not None:
            return self._give(now, self._giving, transfer)
        if self._machine.state is UplinkState.SERVING and transfer.phase == pb.TRANSFER_PHASE_RECORDS:
            self._take_strays(transfer)
            return True
        return False

    def handle_link_down(self, now: int, link: int, *, is_refused: bool = False) -> None:
        """`is_refused`: the parent opened no session, because it has too many."""
        if link != self._link:
            return
        self._link = None
        self._joins.forget()
        if self._hands_back and self._giving is not None:
            self._handing_back_failed(now, self._giving)
        elif self._machine.accepts(UplinkEvent.LINK_LOST):
            was = self._machine.state
            state = self._machine.handle(UplinkEvent.LINK_LOST)
            if was is not state:
                self._attempt = 0
            self._settle(now, state)
            if is_refused and self._retry_at is not None:
                self._ledger.note(Refused(self.subtree, Reason.REASON_QUOTA_EXCEEDED, "", final=False))
                self._attempt = max(self._attempt, REFUSED_WAIT)
                self._again_after(now, timers.retry_after(self._attempt, self._means.random))

    def handle_timeout(self, now: int) -> None:
        """Stops serving first, then whatever else is due."""
        if self._tenure.is_over(now) and self._hands_back and self._giving is not None:
            self._handing_back_failed(now, self._giving)
        elif self._tenure.is_over(now) and self._machine.accepts(UplinkEvent.FENCED):
            self._fence(now)
        if self._giving is not None:
            self._giving.handle_timeout(now)
        if self._renew_at is not None and now >= self._renew_at:
            self._renew_leaving(now)
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            self._retry(now)

    def turn_away(self, now: int, refused: pb.JoinAck) -> None:
        """The node was refused for good before this claim was made."""
        self._refused(now, refused)

    def hand_back(self, now: int) -> None:
        """By order: it ends when the parent has the subtree, or another node turns out to have it. Until then
        this node goes on, over all that may fail."""
        self._hands_back = True
        if self._machine.state is UplinkState.SERVING:
            self._leave(now)
        elif self._machine.state is UplinkState.AWAIT_INVITATION:
            if self.is_covered or (self.refused is not None and not self._is_passing(self.refused)):
                self._settle(now, self._machine.handle(UplinkEvent.LEAVE))
            else:
                self._again_after(now, 0)

    def leave(self, now: int) -> None:
        """The node goes: hands the subtree back, with what was delegated below it, or stops without that."""
        self._hands_back = False
        self._leave(now)

    def _leave(self, now: int) -> None:
        if not self._machine.accepts(UplinkEvent.LEAVE):
            return
        self._means.delegating.close(self.subtree)
        state = self._machine.handle(UplinkEvent.LEAVE)
        link = self._link
        if state is not UplinkState.AWAIT_TAKE_BACK or link is None:
            self._settle(now, UplinkState.STOPPED)
            return
        if self._taken is not None:  # Who hands back need not remember what it has.
            self._say_done(self._taken)
        self._core.send(link, pack(pb.Leave(subtree=self.subtree, epoch=self._tenure.epoch)))
        custody = self._means.custody
        leavers = custody.leavers(self.subtree)
        self._giving = Giving(self._core, custody.estate, self.subtree, self._tenure.epoch, link, leavers)
        self._giving.begin(now)
        self._retry_at = now + LEAVE_WAIT
        self._renew_at = now + timers.LEASE // timers.LEASE_RENEWALS

    def merge(self, now: int) -> None:
        """§5.1: where this node has come to serve what is around the subtree, this is a part of that, and no
        grant of its own any more. Nothing moves."""
        if not self.is_held or not self._jurisdiction.is_inner(self.subtree):
            return
        self._machine.handle(UplinkEvent.COVERED)
        self._jurisdiction.merge(self.subtree)
        self._means.custody.outdo(self._tenure.epoch)
        links = self._link, self._former
        self._stop()
        for link in links:
            if link is not None:
                self._means.hang_up(link)
        self._again_after(now, COVERED_WAIT)

    def follow(self, subscription: Subscription, ended: bool) -> None:
        """A subscription changed: a handover under way hears of it."""
        if self._giving is not None:
            self._giving.follow(subscription, ended)

    # Read

    @property
    def state(self) -> UplinkState:
        return self._machine.state

    @property
    def is_held(self) -> bool:
        """Whether this node serves the subtree by this claim."""
        return self._machine.state in (UplinkState.SERVING, UplinkState.AWAIT_RENEWAL)

    @property
    def is_covered(self) -> bool:
        """Whether this node serves the subtree by a claim to a larger one (§5.1)."""
        decider = self._jurisdiction.lookup(self.subtree)
        return isinstance(decider, Grant) and decider.subtree != self.subtree and decider.serving

    @property
    def link(self) -> int | None:
        return self._link

    @property
    def parent(self) -> str:
        """The parent's name; empty until there is one."""
        return self._parent_name

    def poll_timeout(self) -> int | None:
        giving = None if self._giving is None else self._giving.poll_timeout()
        return earliest(self._tenure.until, self._retry_at, self._renew_at, giving)

    # Asking

    def _ask_root(self, now: int) -> None:
        self._asking.begin(now)
        self._again_after(now, timers.retry_after(self._attempt, self._means.random, timers.SEARCH_MOST))

    def _ask_parent(self, now: int, parent: Address) -> None:
        self._link = self._core.connect(parent, self._asking.token)
        self._core.send(self._link, self._join(now))
        self._again_after(now, GRANT_WAIT)

    def _join(self, now: int) -> bytes:
        return self._joins.make(now, self._tenure.epoch, fenced=self._tenure.fenced)

    def _renew_leaving(self, now: int) -> None:
        giving, link = self._giving, self._link
        self._renew_at = None
        if giving is None or giving.has_stopped or link is None:
            return
        join = self._joins.make(now, self._tenure.epoch, fenced=self._tenure.fenced, leaving=True)
        self._core.send(link, join)
        self._renew_at = now + timers.LEASE // timers.LEASE_RENEWALS

    def _again_after(self, now: int, period: int) -> None:
        self._retry_at = now + period

    def _retry(self, now: int) -> None:
        match self._machine.state:
            case UplinkState.AWAIT_INVITATION:
                if self.is_covered:
                    self._again_after(now, COVERED_WAIT)
                    return
                self._attempt += 1
                self._ask_root(now)
            case UplinkState.AWAIT_GRANT:
                self._hang_up()
                self._attempt += 1
                self._machine.handle(UplinkEvent.TIMED_OUT)
                self._ask_root(now)
            case UplinkState.AWAIT_HANDOVER | UplinkState.SERVING:
                assert self._link is not None
                self._core.send(self._link, self._join(now))
                self._again_after(now, GRANT_WAIT)
            case UplinkState.AWAIT_RENEWAL:
                self._machine.handle(UplinkEvent.TIMED_OUT)
                self._rejoin(now)
            case UplinkState.AWAIT_TAKE_BACK if self._giving and now < self._giving.moved_at + LEAVE_WAIT:
                self._retry_at = self._giving.moved_at + LEAVE_WAIT
            case UplinkState.AWAIT_TAKE_BACK if self._hands_back and self._giving:
                self._handing_back_failed(now, self._giving)
            case UplinkState.AWAIT_TAKE_BACK:
                self._settle(now, self._machine.handle(UplinkEvent.TIMED_OUT))

    def _rejoin(self, now: int) -> None:
        """Turns to the parent and to the root in turn."""
        self._attempt += 1
        if self._attempt % 2 and self._parent is not None:
            self._ask_parent(now, self._parent)
        else:
            self._link = None
            self._ask_root(now)

    # Answers

    def _doubt(self, now: int) -> None:
        """An answer that proves no key, or another. Anybody may have sent it: it ends nothing and begins
        nothing, and the answer that proves the key counts still. But the key of either node may be missing
        or wrong: who holds nothing yet says so, and takes its time until the next try."""
        self._ledger.drop("unauthenticated")
        if self._machine.state is UplinkState.AWAIT_INVITATION and self._asking.doubt():
            self._ledger.note(Unproved(self.subtree))
            self._attempt = max(self._attempt, REFUSED_WAIT)
            self._again_after(now, timers.retry_after(self._attempt, self._means.random))

    def _prove(self, now: int, nonce: int) -> None:
        """The root wants the key proved over this nonce: the JOIN goes again, with that."""
        if self._asking.learn(nonce):
            self._ask_root(now)

    def _invited(self, now: int, ack: pb.JoinAck) -> None:
        parent = address_from(ack.address)
        if parent is None or not self._machine.accepts(UplinkEvent.INVITED):
            self._ledger.drop("unexpected_packet")
            return
        self._machine.handle(UplinkEvent.INVITED)
        self._parent, self._asking.token = parent, ack.token
        self._joins.forget()
        self._ask_parent(now, parent)

    def _granted(self, now: int, sent_at: int, link: int, ack: pb.JoinAck) -> None:
        if self._machine.accepts(UplinkEvent.GRANTED):
            self._machine.handle(UplinkEvent.GRANTED)
            self._tenure.epoch = ack.epoch
            self._taking = Taking(self._core, self._means.custody.estate, self.subtree, ack.epoch, link)
        elif self._machine.accepts(UplinkEvent.RENEWED) and ack.epoch == self._tenure.epoch:
            self._machine.handle(UplinkEvent.RENEWED)
            if not self._done_waits:
                self._say_done_once_on_disk()
        else:
            self._ledger.drop("unexpected_packet")
            return
        self._attempt = 0
        self._parent_name, self._asking.token = ack.node, ack.token
        self._leave_former(link)
        renewal = self._tenure.renew(sent_at, ack)
        if renewal.is_fenced_now and self._settings.policy is LeasePolicy.SERVE:
            self._ledger.note(PolicyLowered(self.subtree, self._parent_name))
        if self._giving is not None:
            self._hold(serving=not self._giving.has_stopped)
            return
        self._hold(serving=self._machine.state is UplinkState.SERVING)
        self._again_after(now, 0 if renewal.is_news else ack.lease_ms * 1000 // timers.LEASE_RENEWALS)
        if self._hands_back and self._machine.state is UplinkState.SERVING:
            self._leave(now)

    def _refused(self, now: int, ack: pb.JoinAck) -> None:
        state = self._machine.state
        is_final = ack.reason in FINAL_REASONS
        temporary = self._is_passing(ack)
        before, self.refused = self.refused, ack
        self._note_refusal(before, ack, is_final)
        if state in (UplinkState.AWAIT_INVITATION, UplinkState.AWAIT_GRANT):
            self._link = None
            self._joins.forget()
            if self._hands_back and not temporary:  # There is nothing to hand back.
                self._settle(now, self._machine.handle(UplinkEvent.LEAVE))
                return
            event = UplinkEvent.TURNED_AWAY if is_final else UplinkEvent.REFUSED
            self._machine.handle(event)
            self._attempt = max(self._attempt, 0 if temporary else REFUSED_WAIT)
            wait = timers.retry_after(self._attempt, self._means.random)
            self._retry_at = None if is_final else now + wait
        elif ack.reason == Reason.REASON_OUTSIDE_JURISDICTION and self._follow(now, ack):
            pass
        elif temporary or self._seeks_another(ack.reason):
            self._again_after(now, timers.retry_after(self._attempt, self._means.random))
        elif self._machine.accepts(UplinkEvent.FENCED):
            self._fence(now)

    def _note_refusal(self, before: pb.JoinAck | None, ack: pb.JoinAck, is_final: bool) -> None:
        holder = cut_from(ack.holder)
        is_name = self.subtree == f"{STATUS_ROOT}/{self._settings.name}"
        if not is_name or holder is None or ack.reason != Reason.REASON_OVERLAP:
            self._ledger.note(Refused(self.subtree, ack.reason, ack.holder.node, is_final))
        elif before is None or before.holder.address != ack.holder.address:
            self._ledger.note(NameTaken(self.subtree, self._settings.name, holder[2]))

    def _follow(self, now: int, ack: pb.JoinAck) -> bool:
        """Renews with the node that the parent names as the parent from now on (§5.4)."""
        holder = cut_from(ack.holder)
        if holder is None or holder[2] == self._means.address or not self._machine.accepts(_REPARENTED):
            return False
        self._machine.handle(_REPARENTED)
        self._former, self._attempt, self._asking.token = self._link, 0, b""
        self._parent = holder[2]
        self._joins.forget()
        self._ask_parent(now, self._parent)
        return True

    def _is_from_parent(self, link: int | None, ack: pb.JoinAck) -> bool:
        return link is not None and link == self._link and ack.subtree == self.subtree

    def _leave_former(self, link: int) -> None:
        former, self._former = self._former, None
        if former is not None and former != link:
            self._means.hang_up(former)

    def _is_passing(self, ack: pb.JoinAck) -> bool:
        return ack.reason in PASSING_REASONS

    def _seeks_another(self, reason: pb.Reason) -> bool:
        """While the lease lasts, the parent it was is no longer, and the root may know another."""
        outside = reason == Reason.REASON_OUTSIDE_JURISDICTION
        return outside and self._machine.state is UplinkState.AWAIT_RENEWAL

    # Handover

    def _take(self, now: int, taking: Taking, transfer: pb.Transfer) -> bool:
        state = taking.handle(transfer)
        if state is TakingState.AWAIT_COMMIT and transfer.last:
            self._means.custody.forget_ended(self.subtree, taking.inheritance)
        elif state is TakingState.COMPLETE:
            self._taking = None
            self._machine.handle(UplinkEvent.HANDED_OVER)
            self._take_in_again(taking.inheritance)
            self._means.custody.estate.take_over(now, self.subtree, taking.inheritance)
            if taking.inheritance.refused:
                self._ledger.drop("too_many_records", taking.inheritance.refused)
            self._means.gathering.handle_return(now, self.subtree)
            self.refused = None
            self._hold(serving=True)
            self._taken = taking
            self._say_done_once_on_disk()
            # What touches only those came along with the rest.
            if self._jurisdiction.cuts_below(self.subtree):
                self._means.custody.sweep()
            self._ledger.note(Joined(self.subtree, self._parent_name, self._tenure.epoch))
            if self._hands_back:
                self._leave(now)
        return state is not None

    def _say_done_once_on_disk(self) -> None:
        """Where too much waits for the disk, this is tried again with the next renewal."""
        taking = self._taken
        if taking is not None:
            self._done_waits = self._means.after_sync.do(partial(self._say_done, taking))

    def _say_done(self, taking: Taking) -> None:
        """The parent is told once, and no more where another handover has begun."""
        if self._taken is taking:
            self._taken = None
            taking.done()

    def _take_in_again(self, inheritance: Inheritance) -> None:
        """What left with a handing back that failed is here again, where nobody has served the subtree since
        (§5.4, old cuts). Else the parent has it, or had it."""
        exported, self._exported = self._exported, 0
        if exported and self.subtree in inheritance.cuts:
            inheritance.held.insert(0, exported)
        elif exported:
            self._core.drop_held(exported)

    def _take_strays(self, transfer: pb.Transfer) -> None:
        """A restarted parent took these in before it knew of this node (§5.1)."""
        found = map(subscription_from, transfer.subscriptions)
        self._subscribing.take_strays([s for s in found if s is not None])
        self._core.take_retained(list(transfer.retained))

    def _give(self, now: int, giving: Giving, transfer: pb.Transfer) -> bool:
        state = giving.handle(now, transfer)
        if state is GivingState.DRAINING:
            self._hold(serving=False)
            giving.handle_timeout(now)
        elif state is GivingState.COMPLETE:
            self._machine.handle(UplinkEvent.TAKEN_BACK)
            self._ledger.note(Left(self.subtree))
            parent = self._parent_cut
            self._jurisdiction.drop(self.subtree, parent)
            if parent is not None:
                self._means.custody.release_below(self.subtree, parent)
                self._subscribing.moved(_after(parent), with_sessions=True)
                self._means.custody.estate.moved(self.subtree)
            self._stop()
        return state is not None

    @property
    def _parent_cut(self) -> Cut | None:
        """The parent, as whoever holds this subtree after this node."""
        if self._parent is None:
            return None
        return self.subtree, self._parent_name, self._parent, self._tenure.epoch

    def _hold(self, *, serving: bool) -> None:
        self._tenure.hold(self._link, serving=serving)

    # Endings

    def _handing_back_failed(self, now: int, giving: Giving) -> None:
        """The parent is silent. Before COMMIT it cannot serve: this node serves on, and tries again. After
        that nobody knows whether it does: this node asks for the subtree, and hands back what it gets."""
        self._giving = self._renew_at = None
        exported = giving.abandon()
        if not giving.has_committed and not self._tenure.is_over(now):
            self._means.delegating.open(self.subtree)
            self._enter(now, self._machine.handle(UplinkEvent.NOT_TAKEN))
            return
        self._keep(exported)
        self._lose(now, self._machine.handle(UplinkEvent.UNDECIDED))

    def _keep(self, exported: int) -> None:
        """In place of what was kept before, which the parent has had since."""
        before, self._exported = self._exported, exported
        self._core.drop_held(before)

    def _fence(self, now: int) -> None:
        self._lose(now, self._machine.handle(UplinkEvent.FENCED))

    def _lose(self, now: int, state: UplinkState) -> None:
        """It serves no more, though nobody has taken the subtree over."""
        self._ledger.note(LeaseLost(self.subtree))
        missed = list(self._subscribing.connected_touching(self.subtree))
        self._means.gathering.handle_loss(now, missed)
        self._enter(now, state)

    def _settle(self, now: int, state: UplinkState) -> None:
        """As `_enter`; where it stops without its parent, it tells."""
        grant = self._jurisdiction.grant_of(self.subtree)
        if state is UplinkState.STOPPED and grant is not None and grant.serving:
            self._ledger.note(LeaseLost(self.subtree))
        self._enter(now, state)

    def _enter(self, now: int, state: UplinkState) -> None:
        """Enters a state that a failure led to."""
        if state is UplinkState.AWAIT_RENEWAL:
            self._hold(serving=True)
            self._again_after(now, timers.retry_after(0, self._means.random))
            return
        self._stop()
        if state is UplinkState.AWAIT_INVITATION:
            self._again_after(now, timers.retry_after(self._attempt, self._means.random))

    def _stop(self) -> None:
        has_served = self._taking is None
        if self._taking is not None:
            self._taking.abandon()
        if self._giving is not None:
            self._core.drop_held(self._giving.abandon())
        self._taking = self._taken = self._giving = None
        self._retry_at = self._renew_at = None
        self._link = self._former = None
        self._joins.forget()
        lost, until = self._parent_cut, self._tenure.until
        if self._tenure.end():
            if has_served:
                self._means.custody.lapse(self.subtree, until)
            else:
                self._means.custody.sweep()
            if lost is not None:
                self._subscribing.moved(_after(lost))

    def _hang_up(self) -> None:
        """The parent has not granted. Where it has not even proved who it is, the next try begins anew."""
        link, self._link = self._link, None
        self._joins.forget()
        if link is not None and self._settings.join_key:
            self._means.hang_up(link)


def _after(cut: Cut) -> Cut:
    """§6.3: as subscribers are told it, under the next epoch: what still names this node is older."""
    subtree, node, address, epoch = cut
    return subtree, node, address, epoch + 1


_REPARENTED: Final = UplinkEvent.REPARENTED
