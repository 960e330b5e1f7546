"""The lease of one claim, as the child counts it (§5.6).

The child counts from the moment when it sent the JOIN, and stops a drift allowance before the end. The parent
counts from a later moment, and waits a drift allowance after the end. So the clocks need not agree. Under
`serve` the lease does not end. A parent may change the policy to `fence`. Before `fence` is in force,
everything that this node delegated under `serve` must be under `fence`.
"""

from __future__ import annotations

from dataclasses import dataclass

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers

__all__ = ["Lease"]


@dataclass(slots=True)
class Lease:
    """The lease of one claim. `until`: when to stop serving, in microseconds; None: there is no lease, or it
    does not end."""

    until: int | None = None
    fenced: bool = True
    """The lease ends, or there is none."""
    fencing: bool = False
    """The lease will end, once nothing below the subtree is under `serve`."""
    is_held: bool = False
    """There is a lease."""

    def grant(self, sent_at: int, ack: pb.JoinAck, *, lasts_below: bool) -> bool:
        """Takes the lease that a parent granted in answer to a JOIN sent at `sent_at`. `lasts_below`:
        something below the subtree is under `serve`. Returns whether `fence` is in force now and the parent
        must be told."""
        wanted = ack.policy != pb.LEASE_POLICY_SERVE
        was_fenced = self.fenced
        self.fencing = wanted and self.is_held and not was_fenced and lasts_below
        self.fenced = wanted and not self.fencing
        is_news = self.fenced and self.is_held and not was_fenced
        self.is_held = True
        self.until = sent_at + ack.lease_ms * 1000 - timers.LEASE_DRIFT if self.fenced else None
        return is_news

    @property
    def ends(self) -> int | None:
        """When the granted lease ends, in microseconds; None: it does not."""
        return None if self.until is None else self.until + timers.LEASE_DRIFT

    def is_over(self, now: int) -> bool:
        """Whether the node must stop serving."""
        return self.until is not None and now >= self.until
