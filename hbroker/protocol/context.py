"""What the parts of one node share: settings, core, jurisdiction, storage, counters and clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol, TypeAlias

from hbroker.config import NodeSettings
from hbroker.protocol.core import NodeCore
from hbroker.protocol.events import Diagnostics
from hbroker.protocol.ownership.epoch_clock import EpochClock
from hbroker.protocol.ownership.jurisdiction import Jurisdiction
from hbroker.protocol.packets import Address
from hbroker.protocol.revocations import Revocations
from hbroker.protocol.storage import AfterSync, Storage

__all__ = ["Certificates", "CertifiedNode", "NodeContext"]


class CertifiedNode(Protocol):
    """What the certificate of a node says."""

    @property
    def name(self) -> str:
        """The name of the node."""

    def may_own(self, subtree: str) -> bool:
        """Whether the node may own this subtree."""


Certificates: TypeAlias = Callable[[Address], CertifiedNode | None]
"""Returns what the certificate says with which the node at an address proved itself (ADR 35); None: it proved
nothing."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What the parts of one node share.

    `clock` returns the time of the event that is being handled, in microseconds of one monotonic clock. Plus
    `unix_offset_us` it is microseconds since the Unix epoch. `has_restored_queues`: this run restored from
    its store all messages that waited for sessions when the run before it ended (§5.8). `certificates`:
    None: security is off.
    """

    settings: NodeSettings
    core: NodeCore
    jurisdiction: Jurisdiction
    diagnostics: Diagnostics
    storage: Storage
    after_sync: AfterSync
    epoch_clock: EpochClock
    random: Random
    clock: Callable[[], int]
    incarnation: int
    unix_offset_us: int
    revocations: Revocations
    has_restored_queues: bool = False
    certificates: Certificates | None = None

    @property
    def root(self) -> Address:
        """The address of the root."""
        return self.settings.root or self.settings.address
