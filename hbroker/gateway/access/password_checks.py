"""Checks of passwords that wait for a thread: few, and in turn by address.

A check costs tens of milliseconds of a processor. So few wait, and each address has a lane of its own. Lanes
take turns, and between two turns comes the one whose address has asked least of late: who comes for the first
time does not wait behind all who guess, and nobody waits for ever. Where there is no room for one more, the
longest lane loses its last; of lanes as long as each other, the one whose address has asked most. An address
that has asked as often as is counted is then not let in by the core at all. So whoever guesses a lot waits
behind himself, and makes room for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from hbroker._native import Attempts, AttemptSource
from hbroker.gateway.access.attempt_limits import Bound
from hbroker.gateway.access.policy import Admitted, Check, Policy, Verdict
from hbroker.gateway.reason_codes import Code

__all__ = ["MOST_RUNNING", "MOST_WAITING", "Attempt", "Checks", "settle"]

MOST_RUNNING: Final = 2
"""Checks that are being made at once: the threads of the process. More would take the processors from
messages."""
MOST_WAITING: Final = 128
"""Checks that wait for one of them. A longer queue would hold up those at its end for longer than they
wait."""
_WRONG: Final = frozenset({Code.BAD_USER_NAME_OR_PASSWORD, Code.NOT_AUTHORIZED})
_LOOKED_AT: Final = 8
"""Lanes of one length that are compared: where all but a few have asked a lot, some tell as much as all."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One CONNECT whose password is to be checked. `number`: of its connection. `policy`: whose check it
    is."""

    number: int
    source: AttemptSource
    check: Check
    policy: Policy


def settle(attempts: Attempts, now: int, source: AttemptSource, verdict: Verdict | None) -> None:
    """What becomes of an attempt's tokens. `verdict`: None: nobody made one. Where the policy could not tell,
    it was no guess."""
    if isinstance(verdict, Admitted):
        attempts.succeeded(now, source)
    elif verdict is None or verdict.code not in _WRONG:
        attempts.give_back(now, source)


class Checks:
    """What waits, and what is being checked."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._lanes: dict[int, dict[int, Attempt]] = {}
        self._waiting = 0
        self._running: dict[int, Attempt] = {}
        self._is_in_turn = True

    def enter(self, now: int, attempt: Attempt) -> tuple[Attempt, Bound | None] | None:
        """Takes an attempt in. Returns one that is to be refused for it, this one or another, with the bound
        that does so; without a bound there is no room."""
        bound = self._attempts.take(now, attempt.source)
        if bound is not None:
            return attempt, Bound(bound)
        address = attempt.source.address
        self._lanes.setdefault(address, {})[attempt.number] = attempt
        self._waiting += 1
        self._attempts.set_full(self._waiting >= MOST_WAITING)
        if self._waiting <= MOST_WAITING:
            return None
        last = self._last(now, attempt)
        self._remove(last)
        self._attempts.give_back(now, last.source)
        return last, None

    def poll(self, now: int) -> Attempt | None:
        """The next one to be checked; None: there is none, or enough are being checked."""
        if not self._lanes or len(self._running) >= MOST_RUNNING:
            return None
        address = next(iter(self._lanes)) if self._is_in_turn else self._modest(now)
        self._is_in_turn = not self._is_in_turn
        lane = self._lanes[address]
        attempt = lane[next(iter(lane))]
        self._remove(attempt)
        if address in self._lanes:  # Its next one comes when all other lanes had one.
            self._lanes[address] = self._lanes.pop(address)
        self._running[attempt.number] = attempt
        return attempt

    def finish(self, now: int, number: int, verdict: Verdict | None) -> Attempt:
        """What the check of an attempt came to; None: it was not made."""
        attempt = self._running.pop(number)
        settle(self._attempts, now, attempt.source, verdict)
        return attempt

    def _modest(self, now: int) -> int:
        """The address that has asked least."""
        firsts = (lane[next(iter(lane))].source for lane in self._lanes.values())
        return min(firsts, key=lambda source: self._attempts.asked(now, source)).address

    def _last(self, now: int, newest: Attempt) -> Attempt:
        """Who makes room: `newest`, unless a longer lane, or one of an address that asked more, can."""
        longest = max(map(len, self._lanes.values()))
        lane = self._lanes[newest.source.address]
        rank = len(lane), self._attempts.asked(now, newest.source)
        lanes = islice((lane for lane in self._lanes.values() if len(lane) == longest), _LOOKED_AT)
        lasts = [lane[next(reversed(lane))] for lane in lanes]
        worst = max(lasts, key=lambda last: self._attempts.asked(now, last.source))
        return worst if (longest, self._attempts.asked(now, worst.source)) > rank else newest

    def _remove(self, attempt: Attempt) -> None:
        address = attempt.source.address
        lane = self._lanes[address]
        del lane[attempt.number]
        self._waiting -= 1
        self._attempts.set_full(self._waiting >= MOST_WAITING)
        if not lane:
            del self._lanes[address]
