"""The lease of one claim, as its holder counts it (§5.6).

It counts from when the JOIN was sent, and ends a drift allowance early: the parent counts from later and
waits longer, so its clock need not agree. Under `serve` it does not end. A parent may put `fence` in
its place; what this node delegated itself and goes on by itself must be under `fence` before that is in
force.
"""

from __future__ import annotations

from dataclasses import dataclass

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers

__all__ = ["Lease"]


@dataclass(slots=True)
class Lease:
    """`until`: when to stop serving, in microseconds; None: there is no lease, or it does not end."""

    until: int | None = None
    fenced: bool = True
    """It ends, or there is none."""
    fencing: bool = False
    """It is to end, once nothing below goes on by itself."""
    is_held: bool = False
    """There is one."""

    def grant(self, sent_at: int, ack: pb.JoinAck, *, lasts_below: bool) -> bool:
        """Takes what a parent granted to a JOIN sent at `sent_at`. `lasts_below`: something below goes on by
        itself. True: the parent does not know yet that `fence` is in force, and should be told."""
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
        """When the lease ends by the parent's grant; None: it does not."""
        return None if self.until is None else self.until + timers.LEASE_DRIFT

    def is_over(self, now: int) -> bool:
        """Whether to stop serving."""
        return self.until is not None and now >= self.until
