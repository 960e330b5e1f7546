"""Who may join, and where (§5.1, §5.5): a judgement over jurisdiction and request alone, with no effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from hbroker._native import topic_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.hierarchy.jurisdiction import Delegation, Grant, Jurisdiction
from hbroker.protocol.packets import Address, Reason, address_from
from hbroker.subtree import is_within

__all__ = [
    "STATUS_ROOT",
    "Admitted",
    "Applicant",
    "Below",
    "JoinRefused",
    "applicant_from",
    "judge",
]

STATUS_ROOT: Final = "$SYS/nodes"
"""Every node owns what lies below this under its own name, which keeps names unique."""

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
    """It holds nothing, or by a lease that ends."""

    def is_holder(self, delegation: Delegation) -> bool:
        """The same node, this run of it or another (§5.1)."""
        return (delegation.node, delegation.address) == (self.node, self.address)


@dataclass(frozen=True, slots=True)
class Admitted:
    """This node is the parent, by this grant."""

    grant: Grant


@dataclass(frozen=True, slots=True)
class Below:
    """The child that holds this delegation is to decide."""

    delegation: Delegation


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """Refused, for `reason` (a `Reason`)."""

    reason: pb.Reason
    holder: Delegation | None = None


JoinDecision: TypeAlias = Admitted | Below | JoinRefused


def applicant_from(join: pb.Join) -> Applicant | None:
    """None: the JOIN breaks the protocol."""
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
    """Who decides about a JOIN, and how this node does. `pending`: delegations whose handover has begun."""
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
    for other in pending:  # Soon its holder decides, or it goes along.
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
    """For a subtree that is delegated already, the grant that it was cut out of."""
    grant = jurisdiction.enclosing(applicant.subtree)
    if grant is None:
        return JoinRefused(Reason.REASON_OUTSIDE_JURISDICTION)
    return Admitted(grant) if grant.serving else JoinRefused(Reason.REASON_NOT_SERVING)
