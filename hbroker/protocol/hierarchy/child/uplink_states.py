"""The states of one claim, from the first JOIN to the last lease (§5.1, §5.6)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

__all__ = ["UPLINK", "UplinkEvent", "UplinkState"]


class UplinkState(Enum):
    """What a claim waits for."""

    AWAIT_INVITATION = auto()
    AWAIT_GRANT = auto()
    AWAIT_HANDOVER = auto()
    SERVING = auto()
    AWAIT_RENEWAL = auto()
    """It serves on, without a link to the parent, or before the first answer of a new parent."""
    AWAIT_TAKE_BACK = auto()
    STOPPED = auto()


class UplinkEvent(Enum):
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


UPLINK: Final = {
    (UplinkState.AWAIT_INVITATION, UplinkEvent.INVITED): UplinkState.AWAIT_GRANT,
    (UplinkState.AWAIT_INVITATION, UplinkEvent.TIMED_OUT): UplinkState.AWAIT_INVITATION,
    (UplinkState.AWAIT_INVITATION, UplinkEvent.REFUSED): UplinkState.AWAIT_INVITATION,
    (UplinkState.AWAIT_INVITATION, UplinkEvent.FINALLY_REFUSED): UplinkState.STOPPED,
    (UplinkState.AWAIT_INVITATION, UplinkEvent.LEAVE): UplinkState.STOPPED,
    (UplinkState.AWAIT_GRANT, UplinkEvent.GRANTED): UplinkState.AWAIT_HANDOVER,
    (UplinkState.AWAIT_GRANT, UplinkEvent.LINK_LOST): UplinkState.AWAIT_INVITATION,
    (UplinkState.AWAIT_GRANT, UplinkEvent.TIMED_OUT): UplinkState.AWAIT_INVITATION,
    (UplinkState.AWAIT_GRANT, UplinkEvent.REFUSED): UplinkState.AWAIT_INVITATION,
    (UplinkState.AWAIT_GRANT, UplinkEvent.FINALLY_REFUSED): UplinkState.STOPPED,
    (UplinkState.AWAIT_GRANT, UplinkEvent.LEAVE): UplinkState.STOPPED,
    (UplinkState.AWAIT_HANDOVER, UplinkEvent.HANDED_OVER): UplinkState.SERVING,
    (UplinkState.AWAIT_HANDOVER, UplinkEvent.RENEWED): UplinkState.AWAIT_HANDOVER,
    (UplinkState.AWAIT_HANDOVER, UplinkEvent.LINK_LOST): UplinkState.AWAIT_INVITATION,
    (UplinkState.AWAIT_HANDOVER, UplinkEvent.FENCED): UplinkState.AWAIT_INVITATION,
    (UplinkState.AWAIT_HANDOVER, UplinkEvent.LEAVE): UplinkState.STOPPED,
    (UplinkState.SERVING, UplinkEvent.RENEWED): UplinkState.SERVING,
    (UplinkState.SERVING, UplinkEvent.LINK_LOST): UplinkState.AWAIT_RENEWAL,
    (UplinkState.SERVING, UplinkEvent.REPARENTED): UplinkState.AWAIT_RENEWAL,
    (UplinkState.SERVING, UplinkEvent.FENCED): UplinkState.AWAIT_INVITATION,
    (UplinkState.SERVING, UplinkEvent.COVERED): UplinkState.AWAIT_INVITATION,
    (UplinkState.SERVING, UplinkEvent.LEAVE): UplinkState.AWAIT_TAKE_BACK,
    (UplinkState.AWAIT_RENEWAL, UplinkEvent.INVITED): UplinkState.AWAIT_RENEWAL,
    (UplinkState.AWAIT_RENEWAL, UplinkEvent.RENEWED): UplinkState.SERVING,
    (UplinkState.AWAIT_RENEWAL, UplinkEvent.LINK_LOST): UplinkState.AWAIT_RENEWAL,
    (UplinkState.AWAIT_RENEWAL, UplinkEvent.TIMED_OUT): UplinkState.AWAIT_RENEWAL,
    (UplinkState.AWAIT_RENEWAL, UplinkEvent.REFUSED): UplinkState.AWAIT_RENEWAL,
    (UplinkState.AWAIT_RENEWAL, UplinkEvent.FENCED): UplinkState.AWAIT_INVITATION,
    (UplinkState.AWAIT_RENEWAL, UplinkEvent.COVERED): UplinkState.AWAIT_INVITATION,
    (UplinkState.AWAIT_RENEWAL, UplinkEvent.LEAVE): UplinkState.STOPPED,
    (UplinkState.AWAIT_TAKE_BACK, UplinkEvent.RENEWED): UplinkState.AWAIT_TAKE_BACK,
    (UplinkState.AWAIT_TAKE_BACK, UplinkEvent.TAKEN_BACK): UplinkState.STOPPED,
    (UplinkState.AWAIT_TAKE_BACK, UplinkEvent.NOT_TAKEN): UplinkState.AWAIT_RENEWAL,
    (UplinkState.AWAIT_TAKE_BACK, UplinkEvent.UNDECIDED): UplinkState.AWAIT_INVITATION,
    (UplinkState.AWAIT_TAKE_BACK, UplinkEvent.LINK_LOST): UplinkState.STOPPED,
    (UplinkState.AWAIT_TAKE_BACK, UplinkEvent.FENCED): UplinkState.STOPPED,
    (UplinkState.AWAIT_TAKE_BACK, UplinkEvent.TIMED_OUT): UplinkState.STOPPED,
}
