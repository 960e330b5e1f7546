"""Encodes a payload for `publish`, and defines the receipt that it returns."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Receipt", "encoded"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of a published message. `reason`: `REASON_SUCCESS` or `REASON_NO_MATCHING_SUBSCRIBERS`;
    None: the message has QoS 0, and is only queued. `sequence`: the client's publisher id and this number
    together are the message's id (docs/protocol.md §7.9)."""

    topic: str
    sequence: int
    qos: int
    reason: int | None


def encoded(payload: bytes | str) -> bytes:
    """The bytes of a payload: text is encoded in UTF-8, and the bytes of a buffer are copied. Raises
    TypeError for anything else, because only the publisher knows how a number becomes bytes."""
    if type(payload) is bytes:
        return payload
    if isinstance(payload, str):
        return payload.encode()
    try:
        return bytes(memoryview(payload))
    except TypeError:
        kind = type(payload).__name__
        raise TypeError(f"a payload is bytes or str, not {kind}: publish str(value), or encode it") from None
