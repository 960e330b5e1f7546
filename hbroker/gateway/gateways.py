"""Which gateways there are: each says so in a retained message, and its network will takes that back.

The will is published when the gateway's link to the owner of `$gateway` is silent for the idle timeout
(docs/protocol.md §6.6). A gateway that restarts has the same name and another run.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from hbroker.gateway.sealing import GATEWAYS

__all__ = ["Gateways", "Presence"]

_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Presence:
    """What a gateway says of itself. `listeners`: as text. `since_us`: since the Unix epoch."""

    name: str
    run: int
    is_alive: bool = True
    listeners: tuple[str, ...] = ()
    since_us: int = 0

    @property
    def topic(self) -> str:
        """Where it is kept."""
        return GATEWAYS + self.name

    def body(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "gateway": self.name,
            "run": self.run,
            "alive": self.is_alive,
            "listeners": list(self.listeners),
            "since_us": self.since_us,
        }

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Presence | None:
        """What `body` made; None: it is something else."""
        try:
            return cls(
                str(body["gateway"]),
                int(body["run"]),
                bool(body["alive"]),
                tuple(str(listener) for listener in body["listeners"]),
                int(body["since_us"]),
            )
        except (KeyError, TypeError, ValueError):
            return None


class Gateways:
    """All gateways that this one knows of, itself included."""

    def __init__(self, name: str, run: int) -> None:
        self._own = Presence(name, run)
        self._others: dict[str, Presence] = {}

    def take(self, presence: Presence) -> None:
        """What a gateway said of itself, or its will says."""
        if presence.name != self._own.name and (presence.name in self._others or len(self._others) < _MOST):
            self._others[presence.name] = presence

    def is_self(self, run: int) -> bool:
        """Whether this is the run that asks."""
        return run == self._own.run

    def is_alive(self, name: str, run: int) -> bool:
        """Whether that run of that gateway is there, as far as is known."""
        if self.is_self(run):
            return True
        known = self._others.get(name)
        return known is not None and known.is_alive and known.run == run

    def is_first_for(self, hash: str) -> bool:
        """Whether of all gateways that are there this one has the highest hash with `hash` (rendezvous)."""
        names = [known.name for known in self._others.values() if known.is_alive]
        return all(_weight(hash, self._own.name) > _weight(hash, name) for name in names)

    @property
    def names(self) -> list[str]:
        """Those that are there, this one included."""
        return sorted([self._own.name, *(known.name for known in self._others.values() if known.is_alive)])


def _weight(hash: str, name: str) -> bytes:
    return blake2b(f"{hash}/{name}".encode(), digest_size=8).digest()
