"""What all claims of one node share (`hbroker.protocol.hierarchy.child.uplink`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hbroker.protocol.context import NodeContext
from hbroker.protocol.handover.recovery import Recovery
from hbroker.protocol.hierarchy.parent.delegations import Delegations
from hbroker.protocol.hierarchy.parent.parent import ParentRole
from hbroker.protocol.subscriptions.owner.subscriptions import OwnerSubscriptions

__all__ = ["UplinkContext"]


@dataclass(frozen=True, slots=True)
class UplinkContext:
    """What all claims of one node share.

    `hang_up(link)`: closes a link to a parent, unless another claim uses it.
    """

    node: NodeContext
    owner_subscriptions: OwnerSubscriptions
    recovery: Recovery
    delegations: Delegations
    parent_role: ParentRole
    hang_up: Callable[[int], None]
