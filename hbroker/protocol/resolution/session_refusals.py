"""Owners that refuse this client a session because they have too many (§3.6, §9), and when to try again.

The pauses between tries grow like those between repeats of a request. After `PATIENCE` waiting messages fail
without another try, because a node, or the client's host there, stays full for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.protocol.packets import Address
from hbroker.protocol.timers import RETRY_MOST, SECOND, retry_after

__all__ = ["PATIENCE", "Refusal", "Refusals"]

PATIENCE: Final = 5 * SECOND
"""Microseconds that messages wait for an owner that refuses sessions, from its first refusal in a row."""
_MOST: Final = 1_024


@dataclass(frozen=True, slots=True)
class Refusal:
    """`since`: the time of the first refusal in a row. `until`: when to try again. Both in microseconds."""

    since: int
    tries: int
    until: int

    @property
    def gives_up_at(self) -> int:
        """When waiting messages fail, in microseconds."""
        return self.since + PATIENCE


class Refusals:
    """The refusals of one client, by the owner's address."""

    __slots__ = ("_known", "_random")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._known: ExpiringCache[Address, Refusal] = ExpiringCache(_MOST)

    def note(self, now: int, owner: Address) -> None:
        """The owner has refused once more. The refusal is one in a row if the last pause ended no longer than
        `RETRY_MOST` ago."""
        before = self._known.get(now, owner) or Refusal(now, 0, now)
        until = now + retry_after(before.tries, self._random)
        self._known.put(owner, Refusal(before.since, before.tries + 1, until), until + RETRY_MOST)

    def forget(self, owner: Address) -> None:
        """The owner has accepted a session."""
        self._known.discard(owner)

    def find(self, now: int, owner: Address) -> Refusal | None:
        """The last refusal of an owner whose pause is not over; else None."""
        known = self._known.get(now, owner)
        return known if known is not None and now < known.until else None
