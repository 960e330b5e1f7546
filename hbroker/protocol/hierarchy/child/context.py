"""What all claims of one node share (`hbroker.protocol.hierarchy.child.uplink`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from hbroker.config import NodeSettings
from hbroker.protocol.core import NodeCore
from hbroker.protocol.events import Diagnostics
from hbroker.protocol.handover.recovery import Recovery
from hbroker.protocol.hierarchy.parent.delegations import Delegations
from hbroker.protocol.hierarchy.parent.parent import ParentRole
from hbroker.protocol.ownership.jurisdiction import Jurisdiction
from hbroker.protocol.packets import Address
from hbroker.protocol.storage import AfterSync
from hbroker.protocol.subscriptions.owner.subscriptions import OwnerSubscriptions

__all__ = ["UplinkContext"]


@dataclass(frozen=True, slots=True)
class UplinkContext:
    """What all claims of one node share.

    `root`: where to join. `address`, `incarnation`: this node's. `hang_up(link)`: closes a link to a parent,
    unless another claim uses it.
    """

    settings: NodeSettings
    root: Address
    address: Address
    incarnation: int
    core: NodeCore
    jurisdiction: Jurisdiction
    owner_subscriptions: OwnerSubscriptions
    gathering: Recovery
    delegations: Delegations
    parent_role: ParentRole
    diagnostics: Diagnostics
    after_sync: AfterSync
    random: Random
    hang_up: Callable[[int], None]
