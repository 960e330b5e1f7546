"""What one claim holds, an epoch under a lease, and its grant in the jurisdiction (§5.1, §5.6)."""

from __future__ import annotations

from dataclasses import dataclass

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.hierarchy.child.lease import Lease
from hbroker.protocol.ownership.jurisdiction import Grant, Jurisdiction

__all__ = ["LeaseHolder", "Renewal"]


@dataclass(frozen=True, slots=True)
class Renewal:
    """What changed with a parent's grant."""

    is_news: bool
    """The policy `fence` is in force now, and the parent must be told."""
    is_fenced_now: bool
    """The policy `fence` is in force, and was not before."""


class LeaseHolder:
    """The lease and grant of one claim."""

    def __init__(self, subtree: str, jurisdiction: Jurisdiction) -> None:
        self._subtree = subtree
        self._jurisdiction = jurisdiction
        self._lease = Lease()
        self.epoch = 0
        """0: the claim holds nothing."""

    def renew(self, sent_at: int, ack: pb.JoinAck) -> Renewal:
        """Takes the lease that a parent granted in answer to a JOIN sent at `sent_at`."""
        lease = self._lease
        was_fenced = lease.fenced and lease.is_held
        below = self._jurisdiction.cuts_below(self._subtree)
        lasts_below = any(delegation.policy is LeasePolicy.SERVE for delegation in below)
        is_news = lease.grant(sent_at, ack, lasts_below=lasts_below)
        return Renewal(is_news, lease.fenced and not was_fenced)

    def hold(self, link: int | None, *, serving: bool) -> None:
        """Updates the grant in the jurisdiction. `link`: to the parent."""
        before = self._jurisdiction.grant_of(self._subtree)
        same = before is not None and before.epoch == self.epoch
        serial = before.serial if before is not None and same else 0
        lease = self._lease
        self._jurisdiction.hold(
            Grant(self._subtree, self.epoch, link, serving, lease.ends, serial, lease.fencing)
        )

    def end(self) -> bool:
        """Ends lease and grant. Returns whether the jurisdiction had the grant."""
        self.epoch = 0
        self._lease = Lease()
        if self._jurisdiction.grant_of(self._subtree) is None:
            return False
        self._jurisdiction.drop(self._subtree)
        return True

    # Read

    @property
    def fenced(self) -> bool:
        """Whether the lease ends, or there is none."""
        return self._lease.fenced

    @property
    def until(self) -> int | None:
        """When to stop serving, in microseconds; None: there is no lease, or it does not end."""
        return self._lease.until

    def is_over(self, now: int) -> bool:
        """Whether this node must stop serving."""
        return self._lease.is_over(now)
