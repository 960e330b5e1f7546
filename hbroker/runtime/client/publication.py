"""What becomes of what a caller gives to be published: its payload as bytes, and what it is told then."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Receipt", "encoded"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a message. `reason`: `REASON_SUCCESS` or `REASON_NO_MATCHING_SUBSCRIBERS`; None: QoS
    0, which is only known to be queued. (`publisher`, `sequence`) is the message's id; the publisher is the
    client."""

    topic: str
    sequence: int
    qos: int
    reason: int | None


def encoded(payload: bytes | str) -> bytes:
    """A payload as it is sent: text in UTF-8; of what has a buffer, its bytes. Raises TypeError for anything
    else: how a number is to be said in bytes its publisher knows."""
    if type(payload) is bytes:
        return payload
    if isinstance(payload, str):
        return payload.encode()
    try:
        return bytes(memoryview(payload))
    except TypeError:
        kind = type(payload).__name__
        raise TypeError(f"a payload is bytes or str, not {kind}: publish str(value), or encode it") from None
