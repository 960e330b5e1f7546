"""The events of a node as entries of its log and of the audit (docs/audit.md)."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from hbroker.addresses import format_address
from hbroker.protocol.events import (
    ChildJoined,
    JoinDenied,
    LeaseLost,
    NameTaken,
    NodeEvent,
    Ordered,
    OrderRefused,
    PolicyLowered,
    Refused,
    RevocationsRefused,
    TokenRefused,
    Unproved,
)
from hbroker.protocol.packets import reason_name

__all__ = ["WARNINGS", "entry_of"]

WARNINGS: Final = (
    Refused,
    Unproved,
    NameTaken,
    LeaseLost,
    PolicyLowered,
    JoinDenied,
    OrderRefused,
    TokenRefused,
    RevocationsRefused,
)
"""The events that were not intended."""
_OTHER_NAMES: Final = {"node": "peer"}
"""An entry has the name of its own node as `node`."""


def entry_of(node_event: NodeEvent) -> dict[str, object]:
    """The fields of an event. Addresses and reasons are texts, and there is no `suppressed` if it is 0."""
    entry = {
        _OTHER_NAMES.get(field.name, field.name): getattr(node_event, field.name)
        for field in fields(node_event)
    }
    if isinstance(node_event, Refused):
        entry["reason"] = reason_name(node_event.reason)
    if isinstance(node_event, ChildJoined | JoinDenied | NameTaken | Ordered | OrderRefused | TokenRefused):
        entry["address"] = format_address(node_event.address)
    if not entry.get("suppressed", True):
        del entry["suppressed"]
    if isinstance(node_event, NameTaken):
        entry["advice"] = "it claims nothing until the other has left: give one of the two another name"
    if isinstance(node_event, Unproved):
        entry["advice"] = "see that both nodes have the network's join key; this one goes on asking"
    if isinstance(node_event, RevocationsRefused):
        entry["advice"] = "put back the file `revoked` of the authority; what is known stays in force"
    return entry
