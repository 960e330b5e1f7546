"""What every payload begins with: who said it, as which of their words, and when it was due.

    run 2 | stream 4 | number 4 | due 8        bytes, big-endian; then what the device says

So whoever receives it counts exactly: what is missing, what came twice, how long it took. `run` tells the
messages of this run from those that an earlier one left retained. `due` is microseconds since the run began.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["STAMP_BYTES", "Stamp", "read", "stamped"]

_STAMP: Final = struct.Struct(">HIIQ")
STAMP_BYTES: Final = _STAMP.size


class Stamp(NamedTuple):
    """See above."""

    run: int
    stream: int
    number: int
    due_us: int


def stamped(stamp: Stamp, body: bytes) -> bytes:
    """A payload."""
    return _STAMP.pack(*stamp) + body


def read(payload: bytes) -> Stamp | None:
    """What it begins with; None: it is too short to be one of ours."""
    if len(payload) < STAMP_BYTES:
        return None
    return Stamp._make(_STAMP.unpack_from(payload))
