"""Claims decide which gateway has a client id. Stamps order them.

A gateway that connects clients *claims* their ids with a message to all gateways, at QoS 1. Each other
gateway first lets go of those clients whose stamps are lower, and then acknowledges the message. So when the
message is distributed (docs/protocol.md §7.3), no other gateway has the clients. Of two claims at once the
higher stamp wins at every gateway.

A stamp is a time and the run of a gateway. The gateways' clocks differ. So no gateway makes a stamp that is
lower than one it has seen (a hybrid logical clock): all gateways have seen a distributed claim, and each
later claim has a higher stamp, whatever the clocks show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hbroker.gateway.records.record_authentication import within
from hbroker.protocol.timers import SECOND

__all__ = [
    "CLAIM_TIMEOUT",
    "MOST_TOGETHER",
    "NEVER",
    "ClientIdClaim",
    "Stamp",
    "StampClock",
    "body_of",
    "parse",
]

CLAIM_TIMEOUT: Final = 3 * SECOND
"""How long a connection waits for its claim. After that the owner of `$gateway` is unreachable, and the
client is connected all the same. The claim is published again until it is distributed; then the connection
with the lower stamp ends."""

MOST_TOGETHER: Final = 32
"""Claims in one message. All its clients wait for the slowest one that another gateway has to let go of."""

_MOST_AHEAD: Final = 86_400 * SECOND
"""A stamp that is further ahead of this clock is forged, or its gateway's clock is wrong. The clock does not
follow it: it would use up the numbers that are left."""

_WORDS: Final = 1 << 64


class Stamp(NamedTuple):
    """When a claim was made (microseconds since the Unix epoch), and by which run of a gateway."""

    time_us: int
    run: int

    @classmethod
    def parse(cls, entry: Any) -> Stamp:
        """A stamp from its JSON form, a list of both numbers. Raises TypeError or ValueError for anything
        else."""
        time_us, run = entry
        return cls(within(time_us, _WORDS), within(run, _WORDS))


NEVER: Final = Stamp(0, 0)
"""Lower than any stamp that a clock makes."""


@dataclass(frozen=True, slots=True)
class ClientIdClaim:
    """The claim of one client. `ends_session`: the client starts clean."""

    client: str
    stamp: Stamp
    ends_session: bool


def body_of(gateway: str, claims: Sequence[ClientIdClaim]) -> dict[str, Any]:
    """The JSON form of claims of one run of a gateway, in the order of their stamps."""
    since_us, run = claims[0].stamp
    return {
        "gateway": gateway,
        "run": run,
        "since": since_us,
        "claims": [[claim.client, claim.stamp.time_us - since_us, claim.ends_session] for claim in claims],
    }


def parse(body: dict[str, Any]) -> list[ClientIdClaim] | None:
    """The inverse of `body_of`; None: the body is something else."""
    match body:
        case {"run": int(run), "since": int(since_us), "claims": [*entries]} if len(entries) <= MOST_TOGETHER:
            claims = [_claim(entry, since_us, run) for entry in entries]
            return None if None in claims else [claim for claim in claims if claim is not None]
    return None


def _claim(entry: object, since_us: int, run: int) -> ClientIdClaim | None:
    match entry:
        case [str(client), int(after_us), bool(clean)]:
            return ClientIdClaim(client, Stamp(since_us + after_us, run), clean)
    return None


class StampClock:
    """Makes the stamps of one run of a gateway. `unix_offset_us`: the wall clock less the clock of `now`."""

    def __init__(self, run: int, unix_offset_us: int) -> None:
        self.run: Final = run
        self._unix_offset_us = unix_offset_us
        self._highest = 0

    def stamp(self, now: int) -> Stamp:
        """A stamp higher than any that this gateway has made or seen."""
        self._highest = max(now + self._unix_offset_us, self._highest + 1)
        return Stamp(self._highest, self.run)

    def observe(self, now: int, stamp: Stamp) -> None:
        """Notes another gateway's stamp."""
        if stamp.time_us <= now + self._unix_offset_us + _MOST_AHEAD:
            self._highest = max(self._highest, stamp.time_us)

    def unix_us(self, now: int) -> int:
        """The wall clock, in microseconds since the Unix epoch."""
        return now + self._unix_offset_us
