"""What one claim holds, an epoch under a lease, and its grant in the jurisdiction (§5.1, §5.6).

The child counts from the moment when it sent the JOIN, and stops a drift allowance before the end. The parent
counts from a later moment, and waits a drift allowance after the end. So the clocks need not agree. Under
`serve` the lease does not end. A parent may change the policy to `fence`. Before `fence` is in force,
everything that this node delegated under `serve` must be under `fence`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.ownership.jurisdiction import Grant, Jurisdiction

__all__ = ["Lease", "Renewal"]


@dataclass(frozen=True, slots=True)
class Renewal:
    """What changed with a parent's grant."""

    must_tell_parent: bool
    """The policy `fence` is in force now, and the parent must be told."""
    is_fenced_now: bool
    """The policy `fence` is in force, and was not before."""


class Lease:
    """The lease and grant of one claim."""

    def __init__(self, subtree: str, jurisdiction: Jurisdiction) -> None:
        self._subtree = subtree
        self._jurisdiction = jurisdiction
        self.epoch = 0
        """0: the claim holds nothing."""
        self.until: int | None = None
        """When to stop serving, in microseconds; None: there is no lease, or it does not end."""
        self.fenced = True
        """The lease ends, or there is none."""
        self._fencing = False
        """The lease will end, once nothing below the subtree is under `serve`."""
        self._is_granted = False

    def renew(self, sent_at: int, ack: pb.JoinAck) -> Renewal:
        """Takes the lease that a parent granted in answer to a JOIN sent at `sent_at`."""
        below = self._jurisdiction.cuts_below(self._subtree)
        lasts_below = any(delegation.policy is LeasePolicy.SERVE for delegation in below)
        wanted = ack.policy != pb.LEASE_POLICY_SERVE
        was_granted, was_fenced = self._is_granted, self.fenced
        self._fencing = wanted and was_granted and not was_fenced and lasts_below
        self.fenced = wanted and not self._fencing
        self._is_granted = True
        self.until = sent_at + ack.lease_ms * 1000 - timers.LEASE_DRIFT if self.fenced else None
        must_tell_parent = self.fenced and was_granted and not was_fenced
        return Renewal(must_tell_parent, self.fenced and not (was_granted and was_fenced))

    def update_grant(self, link: int | None, *, serving: bool) -> None:
        """Updates the grant in the jurisdiction. `link`: to the parent."""
        before = self._jurisdiction.grant_of(self._subtree)
        same = before is not None and before.epoch == self.epoch
        serial = before.serial if before is not None and same else 0
        ends = None if self.until is None else self.until + timers.LEASE_DRIFT
        self._jurisdiction.set_grant(
            Grant(self._subtree, self.epoch, link, serving, ends, serial, self._fencing)
        )

    def end(self) -> bool:
        """Ends lease and grant. Returns whether the jurisdiction had the grant."""
        self.epoch, self.until, self.fenced = 0, None, True
        self._fencing = self._is_granted = False
        if self._jurisdiction.grant_of(self._subtree) is None:
            return False
        self._jurisdiction.remove_grant(self._subtree)
        return True

    def is_over(self, now: int) -> bool:
        """Whether this node must stop serving."""
        return self.until is not None and now >= self.until
