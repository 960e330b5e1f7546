"""Trains: several datagrams that a capture shows as one.

A sender passes the kernel a train of datagrams of one size, of which the last may be shorter, and the kernel
splits it (UDP_SEGMENT). A capture on the host of the sender may show the train.
"""

from __future__ import annotations

from typing import Final

from hbroker.capture.associations import first_of_association

__all__ = ["first_size"]

_HEADER: Final = 0x0A
_FIELDS: Final = (_HEADER, 0x12, 0x1A)
"""The tags of a datagram's fields (docs/protocol.md §2.1), all of which are followed by a length."""


def first_size(data: bytes) -> int:
    """How many bytes the first datagram of a train has; all of them, if it is no train."""
    if (size := first_of_association(data)) is not None:
        return size
    at = 0
    while at < len(data) and data[at] in _FIELDS:
        if at and data[at] == _HEADER:  # No sender repeats the header.
            return at
        at = _behind(data, at + 1)
    return len(data)


def _behind(data: bytes, at: int) -> int:
    """The place behind a length, and so many bytes."""
    length = shift = 0
    while at < len(data):
        length |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            break
    return at + length
