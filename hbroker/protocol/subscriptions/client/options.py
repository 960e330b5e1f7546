"""What the application asks of a subscription: its key, and the options of each listener."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Key", "Options", "Wanted"]

Key: TypeAlias = tuple[str, str]
"""(group, filter): a client has one subscription for each. The group is empty unless the subscription is
shared."""


@dataclass(frozen=True, slots=True)
class Options:
    """Subscription options, the fields of SUBSCRIBE (MQTT 5 §3.8.3.1).

    `overflow`, `queue_messages` and `queue_bytes` are the policy and the bounds of the queue (§7.8). A bound
    of 0 asks for the node's default.
    """

    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    overflow: int = 0
    queue_messages: int = 0
    queue_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A listener to be added: its id, its group and filter, and its options."""

    listener: int
    key: Key
    options: Options
