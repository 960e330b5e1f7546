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
    """A payload as it is sent: text in UTF-8."""
    if type(payload) is bytes:
        return payload
    return payload.encode() if isinstance(payload, str) else bytes(payload)
