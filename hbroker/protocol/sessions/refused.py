"""Owners that open no session for this client, because too many have one (§3.6, §9), and when it tries again.

The pauses between tries grow as those between repeats of a request do. Who has been refused for `PATIENCE`
need not wait for the next try to say so: what fills a node, or the client's address there, lasts.
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
"""How long messages wait for an owner that opens no session, from its first refusal on."""
_MOST: Final = 1_024


@dataclass(frozen=True, slots=True)
class Refusal:
    """`since`: the first in a row. `until`: when to try again. In microseconds."""

    since: int
    tries: int
    until: int

    @property
    def gives_up_at(self) -> int:
        """From when on what waits fails."""
        return self.since + PATIENCE


class Refusals:
    """Those of one client, by the owner's address."""

    __slots__ = ("_known", "_random")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._known: ExpiringCache[Address, Refusal] = ExpiringCache(_MOST)

    def note(self, now: int, owner: Address) -> None:
        """The owner has refused once more. It is one in a row if it was tried again soon after the pause."""
        before = self._known.get(now, owner) or Refusal(now, 0, now)
        until = now + retry_after(before.tries, self._random)
        self._known.put(owner, Refusal(before.since, before.tries + 1, until), until + RETRY_MOST)

    def forget(self, owner: Address) -> None:
        """The owner has opened a session."""
        self._known.discard(owner)

    def find(self, now: int, owner: Address) -> Refusal | None:
        """The last refusal of an owner that is not to be tried again yet."""
        known = self._known.get(now, owner)
        return known if known is not None and now < known.until else None
