"""The life of one delegation, as the parent sees it (§5.4, §5.6).

Its states, and what is on its way to the child, or back from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from hbroker.protocol.handover.handover import HandoverSource, HandoverTarget, TransferSender
from hbroker.protocol.hierarchy.jurisdiction import Delegation
from hbroker.protocol.state_machine import Machine
from hbroker.protocol.timer_queue import earliest

__all__ = ["DELEGATION", "Child", "DelegationEvent", "DelegationState"]


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
    OVERTAKEN = auto()
    """A subtree that holds this one goes to a new owner, before this one was handed back."""
    COMMITTED = auto()
    EXPIRED = auto()
    ENTRUSTED = auto()
    """It has another parent now."""


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
    """One delegation under way or made."""

    delegation: Delegation
    machine: Machine[DelegationState, DelegationEvent]
    handover_source: HandoverSource | None = None
    handover_target: HandoverTarget | None = None
    misdirected: TransferSender | None = None
    """What was taken in by mistake for a child that was not known."""
    is_first: bool = True
    """Nobody but this node served its subtree before."""
    noted_at: int | None = None
    """Of the note that it is delegated (`AfterSync.mark`)."""
    exported: int = 0
    """Where the core holds what waited below the subtree when its handover failed after COMMIT: for the
    child's next run. 0: nothing."""
    below: list[Delegation] = field(default_factory=list)
    """What a child that leaves has delegated itself and goes on by itself (`serve`): see `_expire`."""

    def handle_timeout(self, now: int) -> None:
        """Goes on with what is on its way to the child."""
        for given in (self.handover_source, self.misdirected):
            if given is not None:
                given.handle_timeout(now)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        return earliest(
            *(given.poll_timeout() for given in (self.handover_source, self.misdirected) if given is not None)
        )

    def abandon(self) -> None:
        """Ends the handover under way. What waited below, and went along with the right to serve, is kept."""
        if self.handover_source is not None:
            self.exported = self.handover_source.abandon()
        self.handover_source = self.misdirected = None
        if self.handover_target is not None:
            self.handover_target.abandon()
            self.handover_target = None
