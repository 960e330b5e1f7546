"""Whether a node may join here (§5.1, §5.5): decides by jurisdiction and request alone, without effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from hbroker._native import topic_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT, Delegation, Grant, Jurisdiction
from hbroker.protocol.packets import Address, Reason, address_from
from hbroker.subtree import is_within

__all__ = [
    "Admitted",
    "Applicant",
    "Below",
    "JoinRefused",
    "applicant_from",
    "judge",
]

NAME_LENGTH: Final = 255


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

    def is_holder(self, delegation: Delegation) -> bool:
        """Whether the joiner is the holder of a delegation, in this run or another (§5.1)."""
        return (delegation.node, delegation.address) == (self.node, self.address)


@dataclass(frozen=True, slots=True)
class Admitted:
    """This node is the parent, by this grant."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class Below:
    """The child with this delegation decides."""

    delegation: Delegation


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """The JOIN is refused, for `reason` (a `Reason`)."""

    reason: pb.Reason
    holder: Delegation | None = None


JoinDecision: TypeAlias = Admitted | Below | JoinRefused


def applicant_from(join: pb.Join) -> Applicant | None:
    """The JOIN as an `Applicant`; None: it is malformed."""
    address = address_from(join.address)
    named = 0 < len(join.node.encode()) <= NAME_LENGTH and topic_is_valid(join.node) and "/" not in join.node
    if address is None or not named or not topic_is_valid(join.subtree):
        return None
    policy = LeasePolicy.SERVE if join.policy == pb.LEASE_POLICY_SERVE else LeasePolicy.FENCE
    fenced = join.fenced or not join.epoch or policy is LeasePolicy.FENCE
    return Applicant(
        join.request, join.node, join.subtree, address, join.incarnation, join.epoch, policy, fenced
    )


def judge(applicant: Applicant, jurisdiction: Jurisdiction, pending: Iterable[Delegation]) -> JoinDecision:
    """Decides about a JOIN. `pending`: the delegations whose handover has begun and has not committed."""
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
        if overlaps and not applicant.is_holder(other):
            return JoinRefused(Reason.REASON_HANDOVER, other)
    return Admitted(decider) if decider.serving else JoinRefused(Reason.REASON_NOT_SERVING)


def _by_delegation(applicant: Applicant, jurisdiction: Jurisdiction, decider: Delegation) -> JoinDecision:
    if decider.subtree != applicant.subtree:
        return Below(decider)
    parent = jurisdiction.entrusted_to(decider)
    if parent is not None:
        return Below(parent)
    if not applicant.is_holder(decider):
        return JoinRefused(Reason.REASON_OVERLAP, decider)
    return _by_enclosing(applicant, jurisdiction)


def _by_enclosing(applicant: Applicant, jurisdiction: Jurisdiction) -> JoinDecision:
    """Decides by the grant out of which a subtree that is already delegated was cut."""
    grant = jurisdiction.enclosing(applicant.subtree)
    if grant is None:
        return JoinRefused(Reason.REASON_OUTSIDE_JURISDICTION)
    return Admitted(grant) if grant.serving else JoinRefused(Reason.REASON_NOT_SERVING)
