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
from hbroker.gateway.access.policy import Admitted, Check, Decision, Policy
from hbroker.gateway.reason_codes import Code

__all__ = ["MOST_RUNNING", "MOST_WAITING", "Attempt", "PasswordChecks", "settle"]

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


def settle(attempts: Attempts, now: int, source: AttemptSource, decision: Decision | None) -> None:
    """What becomes of an attempt's tokens. `decision`: None: nobody made one. Where the policy could not
    tell, it was no guess."""
    if isinstance(decision, Admitted):
        attempts.succeeded(now, source)
    elif decision is None or decision.code not in _WRONG:
        attempts.give_back(now, source)


class PasswordChecks:
    """What waits, and what is being checked."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._queues: dict[int, dict[int, Attempt]] = {}
        self._waiting = 0
        self._running: dict[int, Attempt] = {}
        self._is_round_robin = True

    def enter(self, now: int, attempt: Attempt) -> tuple[Attempt, Bound | None] | None:
        """Takes an attempt in. Returns one that is to be refused for it, this one or another, with the bound
        that does so; without a bound there is no room."""
        bound = self._attempts.take(now, attempt.source)
        if bound is not None:
            return attempt, Bound(bound)
        address = attempt.source.address
        self._queues.setdefault(address, {})[attempt.number] = attempt
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
        if not self._queues or len(self._running) >= MOST_RUNNING:
            return None
        address = next(iter(self._queues)) if self._is_round_robin else self._modest(now)
        self._is_round_robin = not self._is_round_robin
        queue = self._queues[address]
        attempt = queue[next(iter(queue))]
        self._remove(attempt)
        if address in self._queues:  # Its next one comes when all other lanes had one.
            self._queues[address] = self._queues.pop(address)
        self._running[attempt.number] = attempt
        return attempt

    def finish(self, now: int, number: int, decision: Decision | None) -> Attempt:
        """What the check of an attempt came to; None: it was not made."""
        attempt = self._running.pop(number)
        settle(self._attempts, now, attempt.source, decision)
        return attempt

    def _modest(self, now: int) -> int:
        """The address that has asked least."""
        firsts = (queue[next(iter(queue))].source for queue in self._queues.values())
        return min(firsts, key=lambda source: self._attempts.asked(now, source)).address

    def _last(self, now: int, newest: Attempt) -> Attempt:
        """Who makes room: `newest`, unless a longer lane, or one of an address that asked more, can."""
        longest = max(map(len, self._queues.values()))
        queue = self._queues[newest.source.address]
        rank = len(queue), self._attempts.asked(now, newest.source)
        queues = islice((queue for queue in self._queues.values() if len(queue) == longest), _LOOKED_AT)
        lasts = [queue[next(reversed(queue))] for queue in queues]
        worst = max(lasts, key=lambda last: self._attempts.asked(now, last.source))
        return worst if (longest, self._attempts.asked(now, worst.source)) > rank else newest

    def _remove(self, attempt: Attempt) -> None:
        address = attempt.source.address
        queue = self._queues[address]
        del queue[attempt.number]
        self._waiting -= 1
        self._attempts.set_full(self._waiting >= MOST_WAITING)
        if not queue:
            del self._queues[address]
