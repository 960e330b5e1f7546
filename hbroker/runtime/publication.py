"""What a caller says of a message that it publishes, and what it is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

__all__ = ["Properties", "Publication", "Receipt", "encoded"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a message. `reason`: `REASON_SUCCESS` or `REASON_NO_MATCHING_SUBSCRIBERS`; None: QoS
    0, which is only known to be queued. (`publisher`, `sequence`) is the message's id; the publisher is the
    client."""

    topic: str
    sequence: int
    qos: int
    reason: int | None


class Properties(TypedDict, total=False):
    """What may be said of a message besides topic and payload. `expiry_s`: seconds after which it is worth
    nothing. `ack_queued`: acknowledge as soon as it is queued for every subscriber (§7.3). The last five
    are MQTT 5's (§3.3.2.3)."""

    qos: int
    retain: bool
    expiry_s: int | None
    ack_queued: bool
    content_type: str
    payload_format: int | None
    response_topic: str
    correlation_data: bytes
    user_properties: Sequence[tuple[str, str]]


@dataclass(slots=True)
class Publication:
    """A message to be published, with its `Properties`. Nobody changes it: it is not frozen because one is
    made for each message, and a frozen one takes six times as long to make."""

    topic: str
    payload: bytes | str = b""
    qos: int = 0
    retain: bool = False
    expiry_s: int | None = None
    ack_queued: bool = False
    content_type: str = ""
    payload_format: int | None = None
    response_topic: str = ""
    correlation_data: bytes = b""
    user_properties: Sequence[tuple[str, str]] = ()


def encoded(payload: bytes | str) -> bytes:
    """A payload as it is sent: text in UTF-8."""
    if type(payload) is bytes:
        return payload
    return payload.encode() if isinstance(payload, str) else bytes(payload)
