"""The settings of one process: frozen, already checked. `hbroker.topology` and the command line make them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

Address = tuple[str, int]
"""An IP address as text, and a UDP port."""


class LeasePolicy(Enum):
    """What a node does with its subtree when its lease runs out (docs/protocol.md §5.6)."""

    FENCE = "fence"
    """It stops, and the parent takes the subtree back."""
    SERVE = "serve"
    """It goes on, and the parent never takes back by itself."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one node takes at most."""

    sessions: int = 1_000_000
    queue_bytes: int = 16 * 1024 * 1024
    """Bytes that wait for one session."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One node process.

    `subtree`: the empty string is the root's. `root`: where to join; None in the root itself. `advertise`: the
    address that others are told; None: the one it listens on. `join_key`: the secret that a JOIN must prove
    (docs/protocol.md §5.5); empty: none is asked.
    """

    name: str
    subtree: str
    listen: Address
    root: Address | None = None
    advertise: Address | None = None
    workers: int = 1
    policy: LeasePolicy = LeasePolicy.FENCE
    join_key: bytes = b""
    limits: Limits = field(default_factory=Limits)

    @property
    def is_root(self) -> bool:
        """Whether this node owns the whole hierarchy, less its cuts."""
        return self.root is None
