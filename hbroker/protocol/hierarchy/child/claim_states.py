"""The states of a claim to a subtree (§5.1, §5.6). `subtree_claim` acts on them."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["CLAIM_TRANSITIONS", "ClaimEvent", "ClaimState"]


class ClaimState(Enum):
    """What a claim waits for."""

    AWAIT_INVITATION = auto()
    AWAIT_GRANT = auto()
    AWAIT_HANDOVER = auto()
    SERVING = auto()
    AWAIT_RENEWAL = auto()
    """It serves on, without a link to the parent, or before the first answer of a new parent."""
    AWAIT_TAKE_BACK = auto()
    STOPPED = auto()


class ClaimEvent(Enum):
    """What happens to a claim."""

    INVITED = auto()
    GRANTED = auto()
    HANDED_OVER = auto()
    RENEWED = auto()
    LINK_LOST = auto()
    REPARENTED = auto()
    """Another node is the parent now (§5.4)."""
    FENCED = auto()
    """The lease ended, or the parent refused to renew it."""
    TIMED_OUT = auto()
    REFUSED = auto()
    FINALLY_REFUSED = auto()
    """Refused for good."""
    COVERED = auto()
    """The node has come to serve a larger subtree around this one, which is now a part of it (§5.1)."""
    LEAVE = auto()
    TAKEN_BACK = auto()
    NOT_TAKEN = auto()
    """The node was ordered to hand the subtree back, and the parent did not take it: the node serves on, and
    tries again."""
    UNDECIDED = auto()
    """As NOT_TAKEN, but after COMMIT: the parent may own the subtree, or nobody."""


CLAIM_TRANSITIONS: Final = {
    (ClaimState.AWAIT_INVITATION, ClaimEvent.INVITED): ClaimState.AWAIT_GRANT,
    (ClaimState.AWAIT_INVITATION, ClaimEvent.TIMED_OUT): ClaimState.AWAIT_INVITATION,
    (ClaimState.AWAIT_INVITATION, ClaimEvent.REFUSED): ClaimState.AWAIT_INVITATION,
    (ClaimState.AWAIT_INVITATION, ClaimEvent.FINALLY_REFUSED): ClaimState.STOPPED,
    (ClaimState.AWAIT_INVITATION, ClaimEvent.LEAVE): ClaimState.STOPPED,
    (ClaimState.AWAIT_GRANT, ClaimEvent.GRANTED): ClaimState.AWAIT_HANDOVER,
    (ClaimState.AWAIT_GRANT, ClaimEvent.LINK_LOST): ClaimState.AWAIT_INVITATION,
    (ClaimState.AWAIT_GRANT, ClaimEvent.TIMED_OUT): ClaimState.AWAIT_INVITATION,
    (ClaimState.AWAIT_GRANT, ClaimEvent.REFUSED): ClaimState.AWAIT_INVITATION,
    (ClaimState.AWAIT_GRANT, ClaimEvent.FINALLY_REFUSED): ClaimState.STOPPED,
    (ClaimState.AWAIT_GRANT, ClaimEvent.LEAVE): ClaimState.STOPPED,
    (ClaimState.AWAIT_HANDOVER, ClaimEvent.HANDED_OVER): ClaimState.SERVING,
    (ClaimState.AWAIT_HANDOVER, ClaimEvent.RENEWED): ClaimState.AWAIT_HANDOVER,
    (ClaimState.AWAIT_HANDOVER, ClaimEvent.LINK_LOST): ClaimState.AWAIT_INVITATION,
    (ClaimState.AWAIT_HANDOVER, ClaimEvent.FENCED): ClaimState.AWAIT_INVITATION,
    (ClaimState.AWAIT_HANDOVER, ClaimEvent.LEAVE): ClaimState.STOPPED,
    (ClaimState.SERVING, ClaimEvent.RENEWED): ClaimState.SERVING,
    (ClaimState.SERVING, ClaimEvent.LINK_LOST): ClaimState.AWAIT_RENEWAL,
    (ClaimState.SERVING, ClaimEvent.REPARENTED): ClaimState.AWAIT_RENEWAL,
    (ClaimState.SERVING, ClaimEvent.FENCED): ClaimState.AWAIT_INVITATION,
    (ClaimState.SERVING, ClaimEvent.COVERED): ClaimState.AWAIT_INVITATION,
    (ClaimState.SERVING, ClaimEvent.LEAVE): ClaimState.AWAIT_TAKE_BACK,
    (ClaimState.AWAIT_RENEWAL, ClaimEvent.INVITED): ClaimState.AWAIT_RENEWAL,
    (ClaimState.AWAIT_RENEWAL, ClaimEvent.RENEWED): ClaimState.SERVING,
    (ClaimState.AWAIT_RENEWAL, ClaimEvent.LINK_LOST): ClaimState.AWAIT_RENEWAL,
    (ClaimState.AWAIT_RENEWAL, ClaimEvent.TIMED_OUT): ClaimState.AWAIT_RENEWAL,
    (ClaimState.AWAIT_RENEWAL, ClaimEvent.REFUSED): ClaimState.AWAIT_RENEWAL,
    (ClaimState.AWAIT_RENEWAL, ClaimEvent.FENCED): ClaimState.AWAIT_INVITATION,
    (ClaimState.AWAIT_RENEWAL, ClaimEvent.COVERED): ClaimState.AWAIT_INVITATION,
    (ClaimState.AWAIT_RENEWAL, ClaimEvent.LEAVE): ClaimState.STOPPED,
    (ClaimState.AWAIT_TAKE_BACK, ClaimEvent.RENEWED): ClaimState.AWAIT_TAKE_BACK,
    (ClaimState.AWAIT_TAKE_BACK, ClaimEvent.TAKEN_BACK): ClaimState.STOPPED,
    (ClaimState.AWAIT_TAKE_BACK, ClaimEvent.NOT_TAKEN): ClaimState.AWAIT_RENEWAL,
    (ClaimState.AWAIT_TAKE_BACK, ClaimEvent.UNDECIDED): ClaimState.AWAIT_INVITATION,
    (ClaimState.AWAIT_TAKE_BACK, ClaimEvent.LINK_LOST): ClaimState.STOPPED,
    (ClaimState.AWAIT_TAKE_BACK, ClaimEvent.FENCED): ClaimState.STOPPED,
    (ClaimState.AWAIT_TAKE_BACK, ClaimEvent.TIMED_OUT): ClaimState.STOPPED,
}
