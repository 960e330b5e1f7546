"""Who has a client id, over all gateways: claims with stamps.

A gateway that is asked to connect a client *claims* its id: a message to all gateways, at QoS 1. Every other
gateway first lets go of what it has of that client, with a lower stamp, and only then says that it handled
the claim. So when the network says that the claim is distributed (docs/protocol.md §7.3) nobody else has the
client any more. Of two claims at once the higher stamp wins, at both ends alike.

A stamp is the time and the run of the gateway that made it. Clocks differ; therefore no stamp is lower than
one that its gateway has seen (a hybrid logical clock): a claim that was distributed was seen by all, and what
comes after it is higher, whatever the clocks show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hbroker.protocol.timers import SECOND

__all__ = ["PATIENCE", "Claim", "Clock", "Stamp"]

PATIENCE: Final = 3 * SECOND
"""How long a claim is waited for. Then the owner of `$gateway` is away, and the client is connected all the
same: the claim is repeated until it is distributed, and whoever then has a lower stamp yields."""

_MOST_AHEAD: Final = 86_400 * SECOND
"""A stamp that is further ahead of this clock is forged, or its gateway's clock is wrong beyond use: it is
not followed, or it would use up the time that is left."""


class Stamp(NamedTuple):
    """When a claim was made (microseconds since the Unix epoch), and by which run of a gateway."""

    time_us: int
    run: int


@dataclass(frozen=True, slots=True)
class Claim:
    """One gateway's word that it connects a client. `ends_session`: the client starts clean."""

    client: str
    gateway: str
    stamp: Stamp
    ends_session: bool

    def body(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "client": self.client,
            "gateway": self.gateway,
            "stamp": list(self.stamp),
            "clean": self.ends_session,
        }

    @classmethod
    def parse(cls, body: dict[str, Any]) -> Claim | None:
        """What `body` made; None: it is something else."""
        match body:
            case {
                "client": str(client),
                "gateway": str(gateway),
                "stamp": [int(time_us), int(run)],
                "clean": bool(clean),
            }:
                return cls(client, gateway, Stamp(time_us, run), clean)
        return None


class Clock:
    """The stamps of one run of a gateway. `unix_offset_us`: what the wall clock has more than `now`."""

    def __init__(self, run: int, unix_offset_us: int) -> None:
        self.run: Final = run
        self._unix_offset_us = unix_offset_us
        self._highest = 0

    def stamp(self, now: int) -> Stamp:
        """One that is higher than any that this gateway has made or seen."""
        self._highest = max(now + self._unix_offset_us, self._highest + 1)
        return Stamp(self._highest, self.run)

    def saw(self, now: int, stamp: Stamp) -> None:
        """Another gateway's stamp."""
        if stamp.time_us <= now + self._unix_offset_us + _MOST_AHEAD:
            self._highest = max(self._highest, stamp.time_us)

    def unix_us(self, now: int) -> int:
        """The wall clock."""
        return now + self._unix_offset_us
