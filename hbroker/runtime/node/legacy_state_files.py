"""What nodes wrote before their files had checksums. Such a file is read once, and replaced.

delegations     `{"holds": "delegations"}`, then a line of JSON for each
claims          one object of JSON
subscriptions   each record behind its length, in 4 bytes

An end that is cut off is left out, as nothing could be promised on it. Anything else that is wrong makes a
`ValueError`: the file is damaged.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError

from hbroker._proto import packet_pb2 as pb

__all__ = ["claims_in", "delegations_in", "subscriptions_in"]

_HEAD: Final = '{"holds": "delegations"}'
_LENGTH: Final = struct.Struct("<I")


def delegations_in(data: bytes) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """(subtree, the entry; None: it has ended), in the order in which they were noted. Raises ValueError."""
    head, *lines = data.decode().split("\n")
    if head != _HEAD:
        raise ValueError("it does not begin as such a file does")
    for line in lines[:-1]:
        entry = json.loads(line)
        if not isinstance(entry, dict) or not isinstance(entry.get("subtree"), str):
            raise ValueError("a line is no delegation")
        yield entry["subtree"], entry if "node" in entry else None


def claims_in(data: bytes) -> dict[str, Any]:
    """What the file holds. Raises ValueError."""
    stored = json.loads(data)
    if not isinstance(stored, dict) or not {"configured", "claims"} <= stored.keys():
        raise ValueError("it holds no claims")
    return stored


def subscriptions_in(data: bytes) -> Iterator[pb.SubscriptionRecord]:
    """The records, in the order in which they were noted. Raises ValueError."""
    at = 0
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        end = at + _LENGTH.size + length
        if end > len(data):
            if not at:
                raise ValueError("its first record is not whole")
            return
        try:
            record = pb.SubscriptionRecord.FromString(data[at + _LENGTH.size : end])
        except DecodeError as error:
            raise ValueError("a record cannot be read") from error
        if not record.session:
            raise ValueError("a record belongs to no session")
        yield record
        at = end
