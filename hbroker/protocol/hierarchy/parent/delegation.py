"""One delegation at its parent (§5.4, §5.6): its states, and the handover under way."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from hbroker.protocol.handover.handover import HandoverSource, HandoverTarget, TransferSender
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.state_machine import Machine
from hbroker.protocol.timer_queue import earliest

__all__ = ["DELEGATION", "Child", "DelegationEvent", "DelegationState"]


class DelegationState(Enum):
    """The state of a delegation at its parent."""

    HANDING_OVER = auto()
    HELD = auto()
    TAKING_BACK = auto()
    GONE = auto()


class DelegationEvent(Enum):
    """What happens to a delegation."""

    ADOPTED = auto()
    """A renewal for a subtree that this node, after a restart, did not know as delegated."""
    DONE = auto()
    LINK_LOST = auto()
    CANCELLED = auto()
    """The link was lost before the cut was made."""
    LEAVE = auto()
    OVERTAKEN = auto()
    """A larger subtree goes to a new owner before this one was handed back."""
    COMMITTED = auto()
    EXPIRED = auto()
    ENTRUSTED = auto()
    """The subtree has another parent now."""


DELEGATION: Final = {
    (DelegationState.HANDING_OVER, DelegationEvent.ADOPTED): DelegationState.HELD,
    (DelegationState.HANDING_OVER, DelegationEvent.DONE): DelegationState.HELD,
    (DelegationState.HANDING_OVER, DelegationEvent.LINK_LOST): DelegationState.HANDING_OVER,
    (DelegationState.HANDING_OVER, DelegationEvent.CANCELLED): DelegationState.GONE,
    (DelegationState.HANDING_OVER, DelegationEvent.EXPIRED): DelegationState.GONE,
    (DelegationState.HANDING_OVER, DelegationEvent.ENTRUSTED): DelegationState.GONE,
    (DelegationState.HELD, DelegationEvent.LINK_LOST): DelegationState.HELD,
    (DelegationState.HELD, DelegationEvent.LEAVE): DelegationState.TAKING_BACK,
    (DelegationState.HELD, DelegationEvent.EXPIRED): DelegationState.GONE,
    (DelegationState.HELD, DelegationEvent.ENTRUSTED): DelegationState.GONE,
    (DelegationState.TAKING_BACK, DelegationEvent.LINK_LOST): DelegationState.HELD,
    (DelegationState.TAKING_BACK, DelegationEvent.OVERTAKEN): DelegationState.HELD,
    (DelegationState.TAKING_BACK, DelegationEvent.COMMITTED): DelegationState.GONE,
    (DelegationState.TAKING_BACK, DelegationEvent.EXPIRED): DelegationState.GONE,
    (DelegationState.TAKING_BACK, DelegationEvent.ENTRUSTED): DelegationState.GONE,
}


@dataclass(slots=True)
class Child:
    """One delegation, made or under way."""

    delegation: Delegation
    machine: Machine[DelegationState, DelegationEvent]
    handover_source: HandoverSource | None = None
    handover_target: HandoverTarget | None = None
    misdirected: TransferSender | None = None
    """The records that this node took in by mistake, before it knew of the child (§5.1)."""
    is_first: bool = True
    """Whether no node but this one has served the subtree before."""
    noted_at: int | None = None
    """The mark of the note that the subtree is delegated (`AfterSync.mark`)."""
    exported: int = 0
    """Where the core holds what waited in the subtree when its handover failed after COMMIT, for the child's
    next run. 0: nothing."""
    below: list[Delegation] = field(default_factory=list)
    """The delegations of a leaving child whose owners go on by themselves (`serve`); `_expire` inherits
    them."""

    def handle_timeout(self, now: int) -> None:
        """Sends the next packets of the handover."""
        for given in (self.handover_source, self.misdirected):
            if given is not None:
                given.handle_timeout(now)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return earliest(
            *(given.poll_timeout() for given in (self.handover_source, self.misdirected) if given is not None)
        )

    def abandon(self) -> None:
        """Ends the handover. After COMMIT, what waited in the subtree is kept in `exported`."""
        if self.handover_source is not None:
            self.exported = self.handover_source.abandon()
        self.handover_source = self.misdirected = None
        if self.handover_target is not None:
            self.handover_target.abandon()
            self.handover_target = None
