"""The payloads that gateways send each other: JSON, authenticated with the join key if there is one.

Every client of the network can write to `$gateway/...`, as to any topic. In a network with a join key, a
payload ends with the HMAC-SHA256 of its topic and its text under that key. So gateways do not accept a claim
or a request of anybody else. Without a key there is no such check, as for JOIN (docs/protocol.md §5.5).
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

__all__ = [
    "CLAIMS",
    "GATEWAYS",
    "MOST_BYTES",
    "REPLIES",
    "REQUESTS",
    "SESSIONS",
    "client_hash",
    "last_level",
    "sign",
    "verify",
    "within",
]

CLAIMS: Final = "$gateway/claims/"
SESSIONS: Final = "$gateway/sessions/"
GATEWAYS: Final = "$gateway/gateways/"
REQUESTS: Final = "$gateway/requests/"
REPLIES: Final = "$gateway/replies/"

MOST_BYTES: Final = 8 << 20
"""A record of this size would hold a hundred thousand messages in flight."""

_MAC_BYTES: Final = 32
_ESCAPE: Final = re.compile(rb"\\u[dD]")
"""The begin of an escaped surrogate."""
_PURPOSE: Final = b"hbroker gateway\0"


def client_hash(client_id: str) -> str:
    """A client id as one topic level: BLAKE2b, 128 bits, in hex."""
    return blake2b(client_id.encode(), digest_size=16).hexdigest()


def last_level(topic: str) -> str:
    """The last level of a topic."""
    return topic.rpartition("/")[2]


def sign(key: bytes, topic: str, body: Mapping[str, object]) -> bytes:
    """The payload for `body` under this topic."""
    text = json.dumps(body, separators=(",", ":")).encode()
    return text + _mac(key, topic, text) if key else text


def verify(key: bytes, topic: str, payload: bytes) -> dict[str, Any] | None:
    """The inverse of `sign`; None: the payload is not valid.

    It is not valid if it was not made with this key for this topic, is no JSON object, or holds what no
    gateway writes: a number that is no integer, or one half of a surrogate pair.
    """
    if len(payload) > MOST_BYTES:
        return None
    if key:
        payload, mac = payload[:-_MAC_BYTES], payload[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(key, topic, payload)):
            return None
    try:
        body = json.loads(payload, parse_float=_refuse, parse_constant=_refuse)
        if _ESCAPE.search(payload):
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _refuse(number: str) -> None:
    raise ValueError(number)


def within(value: Any, end: int) -> int:
    """An integer of a body, at least 0 and below `end`. Raises TypeError or ValueError for anything else."""
    number = int(value)
    if not 0 <= number < end:
        raise ValueError(number)
    return number


def _mac(key: bytes, topic: str, text: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE + topic.encode() + b"\0" + text, "sha256")
