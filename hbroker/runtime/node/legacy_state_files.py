"""Reads the state files of earlier versions, which had no checksums. Each is read once, and then replaced.

    delegations     `{"holds": "delegations"}`, then one line of JSON for each delegation
    claims          one JSON object
    subscriptions   records, each after its length (4 bytes, little-endian)

A truncated end is ignored, because nothing was promised that relies on it. Any other error raises ValueError:
the file is damaged.
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
    """Yields (subtree, entry) in the order in which they were written. Entry None: the delegation ended.
    Raises ValueError."""
    head, *lines = data.decode().split("\n")
    if head != _HEAD:
        raise ValueError("it does not begin as such a file does")
    for line in lines[:-1]:
        entry = json.loads(line)
        if not isinstance(entry, dict) or not isinstance(entry.get("subtree"), str):
            raise ValueError("a line is no delegation")
        yield entry["subtree"], entry if "node" in entry else None


def claims_in(data: bytes) -> dict[str, Any]:
    """The JSON object of the file. Raises ValueError."""
    stored = json.loads(data)
    if not isinstance(stored, dict) or not {"configured", "claims"} <= stored.keys():
        raise ValueError("it holds no claims")
    return stored


def subscriptions_in(data: bytes) -> Iterator[pb.SubscriptionRecord]:
    """Yields the records in the order in which they were written. Raises ValueError."""
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
