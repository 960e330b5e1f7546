"""Password checks: the bounds on wrong passwords, and the checks that wait for a thread.

The bounds are by address, by name, and by both. The native core has the tables (`_native.Attempts`, described
in `mqtt/access/attempts/mod.rs`). Its workers refuse guesses beyond these bounds where they arrive.

A check takes tens of milliseconds of a processor. A bounded number of checks waits, in one queue for each
address. They run in this order:

1. Every other check is the oldest one of the address that has asked least of late. So a new client does not
   wait behind all guesses.
2. The others take the addresses in round-robin order. So no check waits for ever.

If there is no room for another check, the longest queue loses its newest check. Of queues of equal length it
is the queue of the address that has asked most. The core refuses an attempt at once if its address has asked
more often than `ASKED` allows. So an address that guesses a lot delays its own checks, and makes room for
others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from hbroker._native import Attempts, AttemptSource
from hbroker.gateway.access.policy import Admitted, Check, Decision, Policy
from hbroker.gateway.reason_codes import Code
from hbroker.protocol.timers import SECOND

__all__ = [
    "ADDRESS",
    "ASKED",
    "BUSY",
    "MOST_REMEMBERED",
    "MOST_RUNNING",
    "MOST_WAITING",
    "NAME",
    "PAIR",
    "Attempt",
    "Bound",
    "Bucket",
    "PasswordChecks",
    "new_attempts",
    "settle_tokens",
]

MOST_RUNNING: Final = 2
"""Checks that run at once: the process has this number of threads for them. More would take processor time
from messages."""
MOST_WAITING: Final = 128
"""Checks that wait for a thread. In a longer queue the last clients would give up before their turn."""
_WRONG: Final = frozenset({Code.BAD_USER_NAME_OR_PASSWORD, Code.NOT_AUTHORIZED})
_COMPARED_QUEUES: Final = 8
"""Queues of equal length that are compared. If nearly all addresses have asked a lot, a few of them are as
good a sample as all."""


class Bucket(NamedTuple):
    """A token bucket. `burst`: wrong passwords at once. `interval`: µs until one more is allowed."""

    burst: int
    interval: int


PAIR: Final = Bucket(10, 10 * SECOND)
"""Of one address for one name."""
ADDRESS: Final = Bucket(64, 2 * SECOND)
"""Of one address for all names."""
NAME: Final = Bucket(128, 2 * SECOND)
"""Of one name from all addresses."""
ASKED: Final = Bucket(64, SECOND)
"""All attempts of one address, right or wrong. This count decides which waiting check is refused if there is
no room."""
MOST_REMEMBERED: Final = 16_384
"""Entries that each table keeps. It may hold up to twice this number."""
_MOST_KNOWN: Final = 100_000
"""Right passwords that are remembered, the same number as in `runtime.gateway.policies`."""
BUSY: Final = "too many passwords to check"
"""The reason string if there is no room for another check."""


class Bound(Enum):
    """The bound that refuses an attempt. The value is the reason string, and is logged."""

    PAIR = "too many wrong passwords for this name from this address"
    ADDRESS = "too many wrong passwords from this address"
    NAME = "too many wrong passwords for this name"


def new_attempts(seed: int) -> Attempts:
    """The tables of one gateway. `seed`: 64 random bits, secret."""
    return Attempts(
        seed,
        pair=(*PAIR, Bound.PAIR.value),
        address=(*ADDRESS, Bound.ADDRESS.value),
        name=(*NAME, Bound.NAME.value),
        asked=(*ASKED, BUSY),
        entries=MOST_REMEMBERED,
        known=_MOST_KNOWN,
    )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One CONNECT whose password is to be checked. `number`: of its connection. `policy`: the policy that
    made `check`."""

    number: int
    source: AttemptSource
    check: Check
    policy: Policy


def settle_tokens(attempts: Attempts, now: int, source: AttemptSource, decision: Decision | None) -> None:
    """Settles the tokens of an attempt. `decision`: None: there was no check.

    A right password and a refusal that is not about the password (the policy could not decide) cost no token.
    """
    if isinstance(decision, Admitted):
        attempts.succeeded(now, source)
    elif decision is None or decision.code not in _WRONG:
        attempts.give_back(now, source)


class PasswordChecks:
    """The checks that wait, and those that run."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._queues: dict[int, dict[int, Attempt]] = {}
        self._queue_length = 0
        self._running: dict[int, Attempt] = {}
        self._is_round_robin = True

    def add(self, now: int, attempt: Attempt) -> tuple[Attempt, Bound | None] | None:
        """Adds an attempt. Returns the attempt to refuse, this one or another one, with the bound that
        refuses it.

        The bound is None if there is no room. Returns None if no attempt is refused.
        """
        bound = self._attempts.take(now, attempt.source)
        if bound is not None:
            return attempt, Bound(bound)
        address = attempt.source.address
        self._queues.setdefault(address, {})[attempt.number] = attempt
        self._queue_length += 1
        self._attempts.set_full(self._queue_length >= MOST_WAITING)
        if self._queue_length <= MOST_WAITING:
            return None
        last = self._attempt_to_refuse(now, attempt)
        self._remove(last)
        self._attempts.give_back(now, last.source)
        return last, None

    def poll(self, now: int) -> Attempt | None:
        """The next attempt to check; None: there is none, or enough checks are running."""
        if not self._queues or len(self._running) >= MOST_RUNNING:
            return None
        address = next(iter(self._queues)) if self._is_round_robin else self._least_active_address(now)
        self._is_round_robin = not self._is_round_robin
        queue = self._queues[address]
        attempt = queue[next(iter(queue))]
        self._remove(attempt)
        if address in self._queues:  # Its next check comes after one of every other queue.
            self._queues[address] = self._queues.pop(address)
        self._running[attempt.number] = attempt
        return attempt

    def finish(self, now: int, number: int, decision: Decision | None) -> Attempt:
        """Ends a running check. `decision`: None: the check was not made."""
        attempt = self._running.pop(number)
        settle_tokens(self._attempts, now, attempt.source, decision)
        return attempt

    def _least_active_address(self, now: int) -> int:
        """The address that has asked least."""
        firsts = (queue[next(iter(queue))].source for queue in self._queues.values())
        return min(firsts, key=lambda source: self._attempts.asked(now, source)).address

    def _attempt_to_refuse(self, now: int, newest: Attempt) -> Attempt:
        """The attempt to refuse: `newest`, unless there is a longer queue, or an equally long one of an
        address that has asked more."""
        longest = max(map(len, self._queues.values()))
        queue = self._queues[newest.source.address]
        rank = len(queue), self._attempts.asked(now, newest.source)
        queues = islice((queue for queue in self._queues.values() if len(queue) == longest), _COMPARED_QUEUES)
        lasts = [queue[next(reversed(queue))] for queue in queues]
        worst = max(lasts, key=lambda last: self._attempts.asked(now, last.source))
        return worst if (longest, self._attempts.asked(now, worst.source)) > rank else newest

    def _remove(self, attempt: Attempt) -> None:
        address = attempt.source.address
        queue = self._queues[address]
        del queue[attempt.number]
        self._queue_length -= 1
        self._attempts.set_full(self._queue_length >= MOST_WAITING)
        if not queue:
            del self._queues[address]
