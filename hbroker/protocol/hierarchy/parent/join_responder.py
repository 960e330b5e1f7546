"""A node as a parent: which node may join below it, under which epoch, and for how long (§5.1, §5.5, §5.6).

`decide_join` decides by jurisdiction and request alone, without effects. Outside of a session this node
answers a JOIN about which it decides with an invitation; within a session, with a grant. `delegations` then
runs the handover and the lease.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from hbroker._native import topic_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.context import NodeContext
from hbroker.protocol.events import JoinDenied, Suppression
from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.protocol.hierarchy.join_proofs import Nonces, invitation_credential, is_proof, join_credential
from hbroker.protocol.hierarchy.parent.delegation import Child
from hbroker.protocol.hierarchy.parent.delegations import Delegations
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT, Delegation, Grant, Jurisdiction
from hbroker.protocol.packets import Address, Reason, address_from, address_of, cut_of, pack
from hbroker.protocol.requester import Requester
from hbroker.subtree import depth, is_grantable, is_within, prefixes

__all__ = [
    "Admitted",
    "Applicant",
    "DecidedByChild",
    "JoinRefused",
    "JoinResponder",
    "applicant_from",
    "decide_join",
]

NAME_LENGTH: Final = 255
EPOCHS_AHEAD: Final = 24 * 3600 * 1000
"""Milliseconds. An epoch that is further above both this node's clock and the highest known epoch is forged
(§5.1)."""
FENCING_WAIT: Final = 30 * timers.SECOND
"""Microseconds for which delegations below a subtree are put under `fence`, after a JOIN last needed that
(§5.6)."""
MOST_FENCING: Final = 1_000


@dataclass(frozen=True, slots=True)
class Applicant:
    """A JOIN that is well formed."""

    request: int
    node: str
    subtree: str
    address: Address
    incarnation: int
    epoch: int
    policy: LeasePolicy
    fenced: bool
    """Whether the joiner holds nothing, or holds it by a lease that ends (§5.6)."""
    has_restored_queues: bool
    """Whether the joiner restored the messages that waited for sessions in its run before (§5.8)."""

    def is_holder(self, delegation: Delegation) -> bool:
        """Whether the joiner is the holder of a delegation, in this run or another (§5.1)."""
        return (delegation.node, delegation.address) == (self.node, self.address)


@dataclass(frozen=True, slots=True)
class Admitted:
    """This node is the parent, by this grant."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class DecidedByChild:
    """The child with this delegation decides."""

    delegation: Delegation


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """The JOIN is refused, for `reason` (a `Reason`)."""

    reason: pb.Reason
    holder: Delegation | None = None


JoinDecision: TypeAlias = Admitted | DecidedByChild | JoinRefused


def applicant_from(join: pb.Join) -> Applicant | None:
    """The JOIN as an `Applicant`; None: it is malformed."""
    address = address_from(join.address)
    named = 0 < len(join.node.encode()) <= NAME_LENGTH and topic_is_valid(join.node) and "/" not in join.node
    if address is None or not named or not is_grantable(join.subtree):
        return None
    policy = LeasePolicy.SERVE if join.policy == pb.LEASE_POLICY_SERVE else LeasePolicy.FENCE
    fenced = join.fenced or not join.epoch or policy is LeasePolicy.FENCE
    return Applicant(
        join.request,
        join.node,
        join.subtree,
        address,
        join.incarnation,
        join.epoch,
        policy,
        fenced,
        join.keeps_queues,
    )


def decide_join(
    applicant: Applicant, jurisdiction: Jurisdiction, pending: Iterable[Delegation]
) -> JoinDecision:
    """Decides about a JOIN. `pending`: the delegations that are being handed over, until DONE."""
    subtree = applicant.subtree
    if is_within(subtree, "$SYS") and subtree != f"{STATUS_ROOT}/{applicant.node}":
        return JoinRefused(Reason.REASON_NOT_AUTHORIZED)
    decider = jurisdiction.lookup(subtree)
    if decider is None:
        starting = not jurisdiction.grants
        return JoinRefused(Reason.REASON_NOT_SERVING if starting else Reason.REASON_OUTSIDE_JURISDICTION)
    if isinstance(decider, Delegation):
        return _by_delegation(applicant, jurisdiction, decider)
    if decider.subtree == subtree:
        return JoinRefused(Reason.REASON_OVERLAP)
    for other in pending:  # After that handover the holder decides, or the pending subtree goes along.
        overlaps = is_within(other.subtree, subtree) or is_within(subtree, other.subtree)
        is_same = other.subtree == subtree and applicant.is_holder(other)
        if overlaps and not is_same:
            return JoinRefused(Reason.REASON_HANDOVER, other)
    return Admitted(decider) if decider.serving else JoinRefused(Reason.REASON_NOT_SERVING)


def _by_delegation(applicant: Applicant, jurisdiction: Jurisdiction, decider: Delegation) -> JoinDecision:
    if decider.subtree != applicant.subtree:
        return DecidedByChild(decider)
    parent = jurisdiction.future_parent_of(decider)
    if parent is not None:
        return DecidedByChild(parent)
    if not applicant.is_holder(decider):
        return JoinRefused(Reason.REASON_OVERLAP, decider)
    return _by_enclosing(applicant, jurisdiction)


def _by_enclosing(applicant: Applicant, jurisdiction: Jurisdiction) -> JoinDecision:
    """Decides by the grant out of which a subtree that is already delegated was cut."""
    grant = jurisdiction.enclosing_grant(applicant.subtree)
    if grant is None:
        return JoinRefused(Reason.REASON_OUTSIDE_JURISDICTION)
    return Admitted(grant) if grant.serving else JoinRefused(Reason.REASON_NOT_SERVING)


class JoinResponder:
    """Decides about every JOIN. `nonces`: those of this run."""

    def __init__(self, context: NodeContext, delegations: Delegations, nonces: Nonces) -> None:
        self._context = context
        self._settings = context.settings
        self._core = context.core
        self._clock = context.epoch_clock
        self._jurisdiction = context.jurisdiction
        self._delegations = delegations
        self._diagnostics = context.diagnostics
        self._nonces = nonces
        self._closed: set[str] = set()
        self._fencing: ExpiringCache[str, bool] = ExpiringCache(MOST_FENCING)
        """Subtrees whose new owner will be under `fence`. What is delegated below them must be under `fence`
        first."""
        self._denials = Suppression()

    # Change

    def handle_join(self, now: int, requester: Requester, join: pb.Join) -> None:
        """Answers a JOIN, or forwards it. A JOIN within a session is proved by its channel (`channels`)."""
        applicant = applicant_from(join)
        if applicant is None:
            self._refuse(requester, join, JoinRefused(Reason.REASON_PROTOCOL_ERROR))
        elif not self._is_proved(now, requester, join):
            if join.credential:
                self._deny(now, requester, applicant, "unauthenticated")
            self._refuse(requester, join, _UNPROVED, self._nonces.current(now, "join", *requester.address))
        elif (why := self._uncertified(requester, applicant)) is not None:
            self._deny(now, requester, applicant, why)
            self._refuse(requester, join, _UNPROVED)
        elif applicant.epoch > max(self._clock.at(now), self._delegations.highest_epoch) + EPOCHS_AHEAD:
            self._refuse(requester, join, JoinRefused(Reason.REASON_PROTOCOL_ERROR))
        else:
            self._decide(now, requester, join, applicant)

    def refuse(self, link: int, source: Address, join: pb.Join) -> None:
        """Refuses a JOIN that arrived within a session without a proof."""
        self._refuse(Requester(source, session_link=link), join, _UNPROVED)

    def close(self, subtree: str) -> None:
        """This node hands a subtree back, and delegates nothing of it any more. Otherwise it would have two
        owners (§5.4)."""
        self._closed.add(subtree)
        self._delegations.give_up(subtree)

    def open(self, subtree: str) -> None:
        """The subtree was handed back, or is this node's again."""
        self._closed.discard(subtree)

    # Deciding

    def _is_proved(self, now: int, requester: Requester, join: pb.Join) -> bool:
        """§5.5: within a session the channel proves a JOIN, and a parent checks the proof before it forwards
        the JOIN."""
        key = self._settings.join_key
        if not key or requester.session_link is not None or requester.parent_link is not None:
            return True
        is_fresh = self._nonces.is_valid(now, join.nonce, "join", *requester.address)
        return is_fresh and is_proof(join_credential(key, join), join.credential)

    def _uncertified(self, requester: Requester, applicant: Applicant) -> str | None:
        """§5.5: what the certificate of a joiner lacks, as the name of a counter; None: nothing. Looked at
        within a session, and with security."""
        if self._context.certificates is None or requester.session_link is None:
            return None
        certified = self._context.certificates(requester.address)
        if certified is None or certified.name != applicant.node:
            return "uncertified"
        is_own = applicant.subtree == f"{STATUS_ROOT}/{applicant.node}"
        return None if is_own or certified.may_own(applicant.subtree) else "outside_certificate"

    def _deny(self, now: int, requester: Requester, applicant: Applicant, why: str) -> None:
        """Counts a JOIN that was not proved. Reports it, unless another one was reported a moment ago."""
        self._diagnostics.drop(why)
        suppressed = self._denials.suppressed_before(now)
        if suppressed is not None:
            denied = JoinDenied(applicant.subtree, applicant.node, requester.address, why, suppressed)
            self._diagnostics.add_event(denied)

    def _decide(self, now: int, requester: Requester, join: pb.Join, applicant: Applicant) -> None:
        decision = self._decision(requester, applicant)
        match decision:
            case JoinRefused():
                self._refuse(requester, join, decision)
            case DecidedByChild():
                self._forward(requester, join, decision.delegation)
            case Admitted() if (refusal := self._refusal(now, applicant, decision.grant)) is not None:
                self._refuse(requester, join, refusal)
            case Admitted() if requester.session_link is None:
                self._answer(requester, self._joinack(join, requester.address))
            case Admitted():
                self._admit(now, requester.session_link, join, applicant, decision.grant)

    def _decision(self, requester: Requester, applicant: Applicant) -> JoinDecision:
        parent = requester.parent_link
        is_misrouted = parent is not None and not self._jurisdiction.is_granted_by(parent, applicant.subtree)
        is_closed = any(is_within(applicant.subtree, closed) for closed in self._closed)
        is_closed = is_closed and not self._is_renewal(requester, applicant)
        if is_misrouted or is_closed:
            return JoinRefused(Reason.REASON_NOT_SERVING)
        decision = decide_join(applicant, self._jurisdiction, self._delegations.pending)
        is_own = applicant.node == self._settings.name
        return JoinRefused(Reason.REASON_OVERLAP) if is_own and isinstance(decision, Admitted) else decision

    def _is_renewal(self, requester: Requester, applicant: Applicant) -> bool:
        child = self._delegations.children.get(applicant.subtree)
        if child is None or requester.session_link is None:
            return False
        return child.delegation.link == requester.session_link and child.delegation.epoch == applicant.epoch

    def _is_saved(self, subtree: str) -> bool:
        child = self._delegations.children.get(subtree)
        return child is not None and self._delegations.is_saved(child)

    def _refusal(self, now: int, applicant: Applicant, grant: Grant) -> JoinRefused | None:
        """Why this node cannot accept the joiner now, although it is the parent; None: it can."""
        is_new = applicant.subtree not in self._delegations.children
        if is_new and not applicant.epoch and self._jurisdiction.is_in_doubt:
            # §5.9: another node may hold it, or something below it.
            return JoinRefused(Reason.REASON_NOT_SERVING)
        if (
            not applicant.epoch
            and self._context.after_sync.is_failing
            and not self._is_saved(applicant.subtree)
        ):
            # §5.10: the delegation could not be noted on the disk.
            return JoinRefused(Reason.REASON_NOT_SERVING)
        if is_new and any(not grant.serving for grant in self._jurisdiction.grants_below(applicant.subtree)):
            # This node takes a smaller subtree over, and does not know yet whether it has it.
            return JoinRefused(Reason.REASON_HANDOVER)
        if is_new and len(self._delegations.children) >= self._settings.limits.delegations:
            return JoinRefused(Reason.REASON_QUOTA_EXCEEDED)
        if self._lease(now, grant) <= 2 * timers.LEASE_DRIFT:
            return JoinRefused(Reason.REASON_NOT_SERVING)
        if self._policy(now, applicant, grant) is LeasePolicy.FENCE:
            along = self._jurisdiction.cuts_moving_to(applicant.subtree, applicant.node, applicant.address)
            lasting = [d for d in along if d.policy is LeasePolicy.SERVE]
            if lasting:  # §5.6: no node grants a lease that ends after its own.
                self._fencing.put(applicant.subtree, True, now + FENCING_WAIT)
                return JoinRefused(Reason.REASON_HANDOVER, lasting[0])
        return None

    def _policy(self, now: int, applicant: Applicant, grant: Grant) -> LeasePolicy:
        """§5.6: `serve` only if this node goes on by itself, and every node in between does."""
        if applicant.policy is LeasePolicy.FENCE or grant.until is not None or grant.fencing:
            return LeasePolicy.FENCE
        above = prefixes(applicant.subtree, depth(applicant.subtree) - 1)
        fenced = [d.subtree for d in self._delegations.pending if d.policy is LeasePolicy.FENCE]
        is_wanted = any(self._fencing.get(now, prefix) for prefix in above)
        is_fencing = is_wanted or any(is_within(applicant.subtree, subtree) for subtree in fenced)
        return LeasePolicy.FENCE if is_fencing else LeasePolicy.SERVE

    # Granting

    def _admit(self, now: int, link: int, join: pb.Join, applicant: Applicant, grant: Grant) -> None:
        child = self._delegations.children.get(applicant.subtree)
        held = 0 if child is None else child.delegation.epoch
        if applicant.epoch and applicant.epoch < max(held, self._delegations.fenced(applicant.subtree)):
            self._refuse(Requester(applicant.address, session_link=link), join, _STALE)
        elif child is not None and applicant.epoch and held == applicant.epoch:
            self._renew(now, child, link, join, applicant, grant)
        elif applicant.epoch and (others := self._held_within(applicant)):
            overlap = JoinRefused(Reason.REASON_OVERLAP, others[0])
            self._refuse(Requester(applicant.address, session_link=link), join, overlap)
        else:
            self._delegate(now, link, join, applicant, grant)

    def _held_within(self, applicant: Applicant) -> list[Delegation]:
        """§5.1: the delegations of other nodes below a renewed subtree that this node, after a restart, did
        not know as delegated. The applicant does not know them, and would serve their topics, too."""
        return self._jurisdiction.cuts_moving_to(applicant.subtree, applicant.node, applicant.address)

    def _delegate(self, now: int, link: int, join: pb.Join, applicant: Applicant, grant: Grant) -> None:
        lease, policy = self._lease(now, grant), self._policy(now, applicant, grant)
        delegation = Delegation(
            applicant.subtree,
            applicant.node,
            applicant.address,
            applicant.incarnation,
            applicant.epoch or self._next_epoch(now, grant),
            _in_force(applicant, policy),
            link,
            now + lease,
        )
        child = self._delegations.admit(now, delegation)
        self._grant(now, link, join, delegation, lease, policy)
        if applicant.epoch:
            self._delegations.adopt(now, child)
        else:
            self._delegations.hand_over(now, child, has_restored_queues=applicant.has_restored_queues)

    def _renew(
        self, now: int, child: Child, link: int, join: pb.Join, applicant: Applicant, grant: Grant
    ) -> None:
        delegation = child.delegation
        if child.is_handing_back:
            if delegation.link != link:
                self._diagnostics.drop("unexpected_packet")
                return
            if join.leaving:
                lease, policy = self._lease(now, grant), self._policy(now, applicant, grant)
                self._delegations.renew(child, link, now + lease)
                self._grant(now, link, join, delegation, lease, policy)
                return
            # The child takes this node for silent, and has not committed, so it serves on.
            self._delegations.overtake(child)
        if delegation.link != link and not self._delegations.is_cut(child):
            self._refuse(Requester(applicant.address, session_link=link), join, _STALE)
            return
        lease, policy = self._lease(now, grant), self._policy(now, applicant, grant)
        delegation.incarnation = applicant.incarnation
        if delegation.policy is not (in_force := _in_force(applicant, policy)):
            delegation.policy = in_force
            self._jurisdiction.save_cut(delegation)
        self._delegations.renew(child, link, now + lease)
        self._grant(now, link, join, delegation, lease, policy)

    # Answers

    def _forward(self, requester: Requester, join: pb.Join, below: Delegation) -> None:
        origin = requester.forwarded_origin()
        if requester.session_link is not None:
            self._refuse(requester, join, JoinRefused(Reason.REASON_OUTSIDE_JURISDICTION, below))
        elif below.link is None:
            self._refuse(requester, join, JoinRefused(Reason.REASON_OWNER_UNREACHABLE, below))
        elif origin is None:
            self._diagnostics.drop("too_many_hops")
        else:
            forwarded_request = pb.Join()
            forwarded_request.CopyFrom(join)
            forwarded_request.origin.CopyFrom(origin)
            self._core.send(below.link, pack(forwarded_request))

    def _refuse(self, requester: Requester, join: pb.Join, refused: JoinRefused, nonce: int = 0) -> None:
        ack = self._joinack(join, requester.address)
        ack.reason, ack.nonce = refused.reason, nonce
        if refused.holder is not None:
            ack.holder.CopyFrom(cut_of(refused.holder.as_cut()))
        self._diagnostics.count("joins_refused")
        self._answer(requester, ack)

    def _answer(self, requester: Requester, ack: pb.JoinAck) -> None:
        if requester.session_link is None:
            ack.credential = invitation_credential(self._settings.join_key, ack)
        requester.answer(self._core, ack)

    def _grant(
        self, now: int, link: int, join: pb.Join, delegation: Delegation, lease: int, policy: LeasePolicy
    ) -> None:
        ack = self._joinack(join, delegation.address)
        ack.epoch, ack.epoch_clock = delegation.epoch, self._clock.at(now)
        ack.lease_ms = lease // 1000
        serve = policy is LeasePolicy.SERVE
        ack.policy = pb.LEASE_POLICY_SERVE if serve else pb.LEASE_POLICY_FENCE
        self._core.send(link, pack(ack))
        self._context.revocations.handle_join(link, join.revoked)

    def _joinack(self, join: pb.Join, joiner: Address) -> pb.JoinAck:
        return pb.JoinAck(
            request=join.request,
            node=self._settings.name,
            address=address_of(self._settings.address),
            subtree=join.subtree,
            token=self._core.token_for(joiner),
        )

    # Time

    def _lease(self, now: int, grant: Grant) -> int:
        return timers.LEASE if grant.until is None else min(timers.LEASE, grant.until - now)

    def _next_epoch(self, now: int, grant: Grant) -> int:
        return max(self._clock.at(now), self._delegations.highest_epoch + 1, grant.epoch + 1)


def _in_force(applicant: Applicant, granted: LeasePolicy) -> LeasePolicy:
    """The policy that the parent must assume: a child that went on by itself does so until it says
    otherwise."""
    return LeasePolicy.FENCE if granted is LeasePolicy.FENCE and applicant.fenced else LeasePolicy.SERVE


_UNPROVED: Final = JoinRefused(Reason.REASON_NOT_AUTHORIZED)
_STALE: Final = JoinRefused(Reason.REASON_STALE_EPOCH)
