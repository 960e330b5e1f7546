"""How many passwords may be guessed, by whom and for whom: the numbers.

The core has the tables (`_native.Attempts`): its workers refuse guesses beyond these bounds where they come
in. Their theory is there, in `mqtt/attempts.rs`. Here is decided what becomes of an attempt.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from hbroker._native import Attempts
from hbroker.protocol.timers import SECOND

__all__ = ["ADDRESS", "ASKED", "BUSY", "MOST_REMEMBERED", "NAME", "PAIR", "Bound", "Bucket", "new_attempts"]


class Bucket(NamedTuple):
    """`burst`: wrong passwords at once. `interval`: µs until one more is allowed."""

    burst: int
    interval: int


PAIR: Final = Bucket(10, 10 * SECOND)
"""Of one address with one name."""
ADDRESS: Final = Bucket(64, 2 * SECOND)
"""Of one address with any name."""
NAME: Final = Bucket(128, 2 * SECOND)
"""Of one name from any address."""
ASKED: Final = Bucket(64, SECOND)
"""Attempts of one address, right or wrong: it says who makes room for whom, and refuses where there is no
room."""
MOST_REMEMBERED: Final = 16_384
"""Entries of each table that are kept. Up to twice as many are there."""
_MOST_KNOWN: Final = 100_000
"""Passwords that were right, as many as `runtime.hashing` remembers."""
BUSY: Final = "too many passwords to check"
"""What is told where there is no room."""


class Bound(Enum):
    """What refuses an attempt. The value: what is told and logged."""

    PAIR = "too many wrong passwords for this name from this address"
    ADDRESS = "too many wrong passwords from this address"
    NAME = "too many wrong passwords for this name"


def new_attempts(seed: int) -> Attempts:
    """The attempts of one gateway. `seed`: 64 random bits, secret."""
    return Attempts(
        seed,
        pair=(*PAIR, Bound.PAIR.value),
        address=(*ADDRESS, Bound.ADDRESS.value),
        name=(*NAME, Bound.NAME.value),
        asked=(*ASKED, BUSY),
        entries=MOST_REMEMBERED,
        known=_MOST_KNOWN,
    )
