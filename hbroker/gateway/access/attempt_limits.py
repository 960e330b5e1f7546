"""The bounds on wrong passwords: by address, by name, and by both.

The native core has the tables (`_native.Attempts`, described in `mqtt/access/attempts.rs`). Its workers
refuse guesses beyond these bounds where they arrive.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from hbroker._native import Attempts
from hbroker.protocol.timers import SECOND

__all__ = ["ADDRESS", "ASKED", "BUSY", "MOST_REMEMBERED", "NAME", "PAIR", "Bound", "Bucket", "new_attempts"]


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
"""Right passwords that are remembered, the same number as in `runtime.hashing`."""
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
