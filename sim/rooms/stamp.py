"""The head of every payload: its publisher's stream, its number, and when it was due.

    run 2 | stream 4 | number 4 | due 8        bytes, big-endian; then the device's own payload

So each receiver counts exactly what is missing, what is duplicated, and how long it took. `run` distinguishes
the messages of this run from those that an earlier run left retained. `due` is microseconds since the run
began.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = ["STAMP_BYTES", "Stamp", "add_stamp", "read_stamp"]

_STAMP: Final = struct.Struct(">HIIQ")
STAMP_BYTES: Final = _STAMP.size


class Stamp(NamedTuple):
    """The fields of the head, described in the module's docstring."""

    run: int
    stream: int
    number: int
    due_us: int


def add_stamp(stamp: Stamp, body: bytes) -> bytes:
    """A payload with this head."""
    return _STAMP.pack(*stamp) + body


def read_stamp(payload: bytes) -> Stamp | None:
    """The head of a payload; None: the payload is too short to have one."""
    if len(payload) < STAMP_BYTES:
        return None
    return Stamp._make(_STAMP.unpack_from(payload))
