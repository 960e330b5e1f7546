"""Which gateways there are: each says so in a retained message, and its network will takes that back.

The will is published when the gateway's link to the owner of `$gateway` is silent for the idle timeout
(docs/protocol.md §6.6). A gateway that restarts has the same name and another run.

Anyone may write to the topic, and say again what stood there before. So what a gateway says has a stamp,
higher than those before it under its name, and so has the will that takes it back: the same one. Nothing
older than what is known counts, of gateways that are gone either.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, Final

from hbroker.gateway.sessions.claims import NEVER, Stamp
from hbroker.gateway.sessions.record_authentication import GATEWAYS

__all__ = ["MOST", "Gateways", "Presence", "PresenceChange"]

MOST: Final = 10_000
"""Other gateways that are there, and as many that are gone: of more of these the first are forgotten."""


@dataclass(frozen=True, slots=True)
class Presence:
    """What a gateway says of itself. `listeners`: as text. `since_us`: since the Unix epoch."""

    name: str
    run: int
    is_alive: bool = True
    listeners: tuple[str, ...] = ()
    since_us: int = 0
    stamp: Stamp = NEVER

    @property
    def topic(self) -> str:
        """Where it is kept."""
        return GATEWAYS + self.name

    @property
    def order(self) -> tuple[Stamp, bool]:
        """Of what is said of one name the highest counts. A will takes back what has its stamp."""
        return self.stamp, not self.is_alive

    def body(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "gateway": self.name,
            "run": self.run,
            "alive": self.is_alive,
            "listeners": list(self.listeners),
            "since_us": self.since_us,
            "stamp": list(self.stamp),
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
                Stamp.parse(body["stamp"]),
            )
        except (KeyError, TypeError, ValueError):
            return None


class PresenceChange(Enum):
    """What a presence is to who knows what was said before."""

    NEW = auto()
    KNOWN = auto()
    OLD = auto()
    """It was true once, or nobody said it."""
    TOO_MANY = auto()
    """There is no room for another gateway."""


class Gateways:
    """All gateways that this one knows of, itself included."""

    def __init__(self, name: str, run: int) -> None:
        self._own = Presence(name, run)
        self._there: dict[str, Presence] = {}
        """The others."""
        self._gone: OrderedDict[str, tuple[Presence, bytes]] = OrderedDict()
        """Others that were there, and how that was said."""

    def take(self, presence: Presence, payload: bytes) -> PresenceChange:
        """What another gateway said of itself, or its will says, and how it is written."""
        name = presence.name
        known = self.of(name)
        if known is not None and presence.order <= known.order:
            return PresenceChange.KNOWN if presence.order == known.order else PresenceChange.OLD
        if presence.is_alive:
            if name not in self._there and len(self._there) >= MOST:
                return PresenceChange.TOO_MANY
            self._gone.pop(name, None)
            self._there[name] = presence
            return PresenceChange.NEW
        self._there.pop(name, None)
        self._gone[name] = presence, payload
        self._gone.move_to_end(name)
        if len(self._gone) > MOST:
            self._gone.popitem(last=False)
        return PresenceChange.NEW

    def of(self, name: str) -> Presence | None:
        """What is known of another gateway, whether it is there or gone."""
        gone = self._gone.get(name)
        return self._there.get(name) if gone is None else gone[0]

    def truth(self, name: str) -> bytes | None:
        """What is to be said of a gateway that is gone, if this one is to say it."""
        gone = self._gone.get(name)
        return gone[1] if gone is not None and self.is_first_for(name) else None

    def is_self(self, run: int) -> bool:
        """Whether this is the run that asks."""
        return run == self._own.run

    def is_alive(self, name: str, run: int) -> bool:
        """Whether that run of that gateway is there, as far as is known."""
        if self.is_self(run):
            return True
        known = self._there.get(name)
        return known is not None and known.run == run

    def is_first_for(self, hash: str) -> bool:
        """Whether of all gateways that are there this one has the highest hash with `hash` (rendezvous)."""
        return all(_weight(hash, self._own.name) > _weight(hash, name) for name in self._there)

    @property
    def names(self) -> list[str]:
        """Those that are there, this one included."""
        return sorted([self._own.name, *self._there])


def _weight(hash: str, name: str) -> bytes:
    return blake2b(f"{hash}/{name}".encode(), digest_size=8).digest()
