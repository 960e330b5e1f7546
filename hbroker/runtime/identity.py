"""Who a client is: its name, its session, and its will, from what `connect` was given.

A client that wants no more than its own run has a random session, and so may share its name with others. One
whose session is to outlive it, or that ends what an earlier run left, has the session that follows from its
name and key: then only one run of it is connected at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hbroker._native import topic_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.errors import InvalidTopic, PayloadTooLarge
from hbroker.protocol import testator
from hbroker.protocol.packets import PACKET_ROOM
from hbroker.protocol.terms import LONGEST_EXPIRY_S, SessionTerms, session_id

__all__ = ["Identity", "Will", "random_id"]

_WILL_ROOM: Final = PACKET_ROOM - 48
"""A will leaves in one datagram, with what belongs to its registration (§3.4)."""


@dataclass(frozen=True, slots=True)
class Will:
    """A message that the owner of its topic publishes when the client's session breaks off (§6.6).

    `delay`: seconds that the client has to come back before; at most the session's expiry counts.
    `expiry_s`: seconds after its publication. The rest as in `Client.publish`. Topic, payload and properties
    have about 1,000 bytes in all. Raises InvalidTopic, PayloadTooLarge, ValueError.
    """

    topic: str
    payload: bytes | str = b""
    qos: int = 0
    retain: bool = False
    delay: float = 0.0
    expiry_s: int | None = None
    content_type: str = ""
    payload_format: int | None = None
    response_topic: str = ""
    correlation_data: bytes = b""
    user_properties: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        if not topic_is_valid(self.topic):
            raise InvalidTopic(f"not a topic name: {self.topic!r}")
        if self.qos not in (0, 1, 2):
            raise ValueError(f"a QoS is 0, 1 or 2, not {self.qos!r}")
        size = self.message().ByteSize()
        if size > _WILL_ROOM:
            raise PayloadTooLarge(f"a will of {size} bytes: {_WILL_ROOM} are the most")
        _whole_seconds("delay", self.delay)

    def message(self) -> pb.Publish:
        """As it is registered, less its id."""
        message = pb.Publish(
            topic=self.topic,
            payload=self.payload.encode() if isinstance(self.payload, str) else bytes(self.payload),
            qos=pb.Qos.Name(self.qos),
            retain=self.retain,
            content_type=self.content_type,
            response_topic=self.response_topic,
            correlation_data=self.correlation_data,
            user_properties=[pb.UserProperty(name=name, value=value) for name, value in self.user_properties],
        )
        if self.expiry_s is not None:
            message.expiry_s = self.expiry_s
        if self.payload_format is not None:
            message.MergeFrom(pb.Publish(payload_format=pb.PayloadFormat.Name(self.payload_format)))
        return message

    def registered(self) -> testator.Will:
        """As the protocol has it."""
        return testator.Will(self.message(), _whole_seconds("delay", self.delay))


@dataclass(frozen=True, slots=True)
class Identity:
    """One client, as it connects. `will`: None for none."""

    terms: SessionTerms
    will: Will | None = None

    @classmethod
    def of(
        cls,
        client_id: str | None,
        session_expiry: float = 0.0,
        session_key: str | bytes = "",
        clean_start: bool = False,
        will: Will | None = None,
    ) -> Identity:
        """Checks what `connect` was given. Raises ValueError."""
        expiry_s = _whole_seconds("session_expiry", session_expiry)
        key = session_key.encode() if isinstance(session_key, str) else session_key
        if (expiry_s or key or clean_start) and not client_id:
            raise ValueError("a session that is known in another run needs a client_id")
        name = client_id or f"client-{os.urandom(4).hex()}"
        session = session_id(name, key) if expiry_s or clean_start else random_id()
        return cls(SessionTerms(name, session, expiry_s, clean_start), will)


def random_id() -> int:
    """64 random bits, not all zero."""
    return int.from_bytes(os.urandom(8), "big") or 1


def _whole_seconds(name: str, seconds: float) -> int:
    """Rounded up, so that it is never less than was asked for; for ever is the most that there is."""
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"{name} is a number of seconds, not {seconds!r}")
    return LONGEST_EXPIRY_S if seconds >= LONGEST_EXPIRY_S else math.ceil(seconds)
