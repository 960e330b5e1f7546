"""Who has a client id, over all gateways: claims with stamps.

A gateway that is asked to connect clients *claims* their ids: a message to all gateways, at QoS 1. Every
other gateway first lets go of what it has of those clients, with lower stamps, and only then says that it
handled the message. So when the network says that it is distributed (docs/protocol.md §7.3) nobody else has
the clients any more. Of two claims at once the higher stamp wins, at both ends alike.

A stamp is the time and the run of the gateway that made it. Clocks differ; therefore no stamp is lower than
one that its gateway has seen (a hybrid logical clock): a claim that was distributed was seen by all, and what
comes after it is higher, whatever the clocks show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hbroker.gateway.sessions.record_authentication import within
from hbroker.protocol.timers import SECOND

__all__ = ["MOST_TOGETHER", "NEVER", "PATIENCE", "Claim", "Clock", "Stamp", "body_of", "parse"]

PATIENCE: Final = 3 * SECOND
"""How long a claim is waited for. Then the owner of `$gateway` is away, and the client is connected all the
same: the claim is repeated until it is distributed, and whoever then has a lower stamp yields."""

MOST_TOGETHER: Final = 32
"""Claims of one message. Its clients wait for the slowest of those that another gateway has to let go of."""

_MOST_AHEAD: Final = 86_400 * SECOND
"""A stamp that is further ahead of this clock is forged, or its gateway's clock is wrong beyond use: it is
not followed, or it would use up the time that is left."""

_WORDS: Final = 1 << 64


class Stamp(NamedTuple):
    """When a claim was made (microseconds since the Unix epoch), and by which run of a gateway."""

    time_us: int
    run: int

    @classmethod
    def parse(cls, entry: Any) -> Stamp:
        """As it travels in JSON: a list of both. Raises TypeError or ValueError for anything else."""
        time_us, run = entry
        return cls(within(time_us, _WORDS), within(run, _WORDS))


NEVER: Final = Stamp(0, 0)
"""Lower than any stamp."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One gateway's word that it connects a client. `ends_session`: the client starts clean."""

    client: str
    stamp: Stamp
    ends_session: bool


def body_of(gateway: str, claims: Sequence[Claim]) -> dict[str, Any]:
    """Claims of one run of a gateway, in the order of their stamps, as they travel."""
    since_us, run = claims[0].stamp
    return {
        "gateway": gateway,
        "run": run,
        "since": since_us,
        "claims": [[claim.client, claim.stamp.time_us - since_us, claim.ends_session] for claim in claims],
    }


def parse(body: dict[str, Any]) -> list[Claim] | None:
    """What `body_of` was given; None: it is something else."""
    match body:
        case {"run": int(run), "since": int(since_us), "claims": [*entries]} if len(entries) <= MOST_TOGETHER:
            claims = [_claim(entry, since_us, run) for entry in entries]
            return None if None in claims else [claim for claim in claims if claim is not None]
    return None


def _claim(entry: object, since_us: int, run: int) -> Claim | None:
    match entry:
        case [str(client), int(after_us), bool(clean)]:
            return Claim(client, Stamp(since_us + after_us, run), clean)
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
