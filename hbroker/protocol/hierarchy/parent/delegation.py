"""One delegation at its parent: its states, and its handovers (§5.4). `delegations` has all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from hbroker.protocol.handover.phases import HandoverSource, HandoverTarget, TransferSender
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.state_machine import StateMachine
from hbroker.protocol.timers import earliest

__all__ = ["DELEGATION", "Child", "DelegationEvent", "DelegationState"]


class DelegationState(Enum):
    """The state of a delegation at its parent."""

    HANDING_OVER = auto()
    HELD = auto()
    TAKING_BACK = auto()
    TAKING_BACK_UNCONFIRMED = auto()
    """As TAKING_BACK, and the child has not sent DONE: this node keeps what it handed over."""
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
    REPARENTED = auto()
    """The subtree has another parent now."""


DELEGATION: Final = {
    (DelegationState.HANDING_OVER, DelegationEvent.ADOPTED): DelegationState.HELD,
    (DelegationState.HANDING_OVER, DelegationEvent.DONE): DelegationState.HELD,
    (DelegationState.HANDING_OVER, DelegationEvent.LEAVE): DelegationState.TAKING_BACK_UNCONFIRMED,
    (DelegationState.HANDING_OVER, DelegationEvent.LINK_LOST): DelegationState.HANDING_OVER,
    (DelegationState.HANDING_OVER, DelegationEvent.CANCELLED): DelegationState.GONE,
    (DelegationState.HANDING_OVER, DelegationEvent.EXPIRED): DelegationState.GONE,
    (DelegationState.HANDING_OVER, DelegationEvent.REPARENTED): DelegationState.GONE,
    (DelegationState.HELD, DelegationEvent.LINK_LOST): DelegationState.HELD,
    (DelegationState.HELD, DelegationEvent.LEAVE): DelegationState.TAKING_BACK,
    (DelegationState.HELD, DelegationEvent.EXPIRED): DelegationState.GONE,
    (DelegationState.HELD, DelegationEvent.REPARENTED): DelegationState.GONE,
    (DelegationState.TAKING_BACK, DelegationEvent.LINK_LOST): DelegationState.HELD,
    (DelegationState.TAKING_BACK, DelegationEvent.OVERTAKEN): DelegationState.HELD,
    (DelegationState.TAKING_BACK, DelegationEvent.COMMITTED): DelegationState.GONE,
    (DelegationState.TAKING_BACK, DelegationEvent.EXPIRED): DelegationState.GONE,
    (DelegationState.TAKING_BACK, DelegationEvent.REPARENTED): DelegationState.GONE,
    (DelegationState.TAKING_BACK_UNCONFIRMED, DelegationEvent.LINK_LOST): DelegationState.HANDING_OVER,
    (DelegationState.TAKING_BACK_UNCONFIRMED, DelegationEvent.OVERTAKEN): DelegationState.HANDING_OVER,
    (DelegationState.TAKING_BACK_UNCONFIRMED, DelegationEvent.COMMITTED): DelegationState.GONE,
    (DelegationState.TAKING_BACK_UNCONFIRMED, DelegationEvent.EXPIRED): DelegationState.GONE,
    (DelegationState.TAKING_BACK_UNCONFIRMED, DelegationEvent.REPARENTED): DelegationState.GONE,
}


_UNCONFIRMED: Final = (DelegationState.HANDING_OVER, DelegationState.TAKING_BACK_UNCONFIRMED)
"""The child has not sent DONE."""
_TAKING_BACK: Final = (DelegationState.TAKING_BACK, DelegationState.TAKING_BACK_UNCONFIRMED)


@dataclass(slots=True)
class Child:
    """One delegation, made or under way."""

    delegation: Delegation
    state_machine: StateMachine[DelegationState, DelegationEvent]
    handover_source: HandoverSource | None = None
    handover_target: HandoverTarget | None = None
    misrouted_records: TransferSender | None = None
    """The records that this node took in by mistake, before it knew of the child (§5.1)."""
    is_first: bool = True
    """Whether no node but this one has served the subtree before."""
    saved_position: int | None = None
    """The position of the record that the subtree is delegated (`AfterSync.is_durable`)."""
    exported: int = 0
    """Where the core holds what waited in the subtree when its handover failed after COMMIT, for the child's
    next run. 0: nothing."""
    has_served: bool = False
    """Whether this run of the child has shown that it took the subtree over, by LEAVE or by a renewal over
    another link. So it has what is in `exported`, or has had it."""
    inherited_delegations: list[Delegation] = field(default_factory=list)
    """The delegations of a leaving child whose owners go on by themselves (`serve`); `_expire` inherits
    them."""

    def handle_timeout(self, now: int) -> None:
        """Sends the next packets of the handover."""
        for given in (self.handover_source, self.misrouted_records):
            if given is not None:
                given.handle_timeout(now)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return earliest(
            *(
                given.poll_timeout()
                for given in (self.handover_source, self.misrouted_records)
                if given is not None
            )
        )

    @property
    def may_serve(self) -> bool:
        """Whether the child serves, or does so as soon as it receives COMMIT."""
        return self.handover_source is None or self.handover_source.has_committed

    @property
    def is_unconfirmed(self) -> bool:
        """Whether the child has not sent DONE."""
        return self.state_machine.state in _UNCONFIRMED

    @property
    def is_handing_back(self) -> bool:
        """Whether the child is handing the subtree back."""
        return self.state_machine.state in _TAKING_BACK

    def abandon(self) -> None:
        """Ends the handover. After COMMIT, what waited in the subtree is kept in `exported`."""
        if self.handover_source is not None:
            self.exported = self.handover_source.abandon()
        self.handover_source = self.misrouted_records = None
        if self.handover_target is not None:
            self.handover_target.abandon()
            self.handover_target = None
