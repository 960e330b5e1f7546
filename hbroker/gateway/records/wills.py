"""When a will is published, and by which process (MQTT 5 §3.1.2.5, MQTT 5 §3.1.3.2.2).

While the gateway lives, it publishes the will: after the client's own messages, and whatever its size. In
case the gateway dies, the client's pool client registers the will with the owner of its topic
(docs/protocol.md §6.6), if it is small enough. A delay outlives the gateway too: the session's record has the
will that is still to be published.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

from hbroker.gateway.native_api import WillMessage
from hbroker.gateway.reason_codes import Code
from hbroker.gateway.records.record_authentication import within
from hbroker.properties import mqtt_properties_of
from hbroker.protocol.timers import SECOND
from hbroker.protocol.wills import client_will

__all__ = ["PendingWill", "after_close", "registered_will"]


@dataclass(frozen=True, slots=True)
class PendingWill:
    """A will that is still to be published. `due_us`: since the Unix epoch."""

    message: WillMessage
    due_us: int

    def body(self) -> dict[str, Any]:
        """The will as a record has it."""
        will = self.message
        return {
            "due_us": self.due_us,
            "topic": will.topic,
            "payload": b64encode(will.payload).decode(),
            "qos": will.qos,
            "retain": will.retain,
            "expiry_s": will.expiry_s,
            "content_type": will.content_type,
            "payload_format": will.payload_format,
            "response_topic": will.response_topic,
            "correlation_data": b64encode(will.correlation_data).decode(),
            "user_properties": [list(pair) for pair in will.user_properties],
        }

    @classmethod
    def parse(cls, body: dict[str, Any]) -> PendingWill:
        """The inverse of `body`. Raises KeyError, TypeError or ValueError for anything else."""
        expiry, format = body["expiry_s"], body["payload_format"]
        message = WillMessage(
            topic=str(body["topic"]),
            payload=b64decode(body["payload"]),
            qos=within(body["qos"], 3),
            retain=bool(body["retain"]),
            expiry_s=None if expiry is None else within(expiry, 1 << 32),
            content_type=str(body["content_type"]),
            payload_format=None if format is None else within(format, 2),
            response_topic=str(body["response_topic"]),
            correlation_data=b64decode(body["correlation_data"]),
            user_properties=tuple((str(name), str(value)) for name, value in body["user_properties"]),
        )
        return cls(message, int(body["due_us"]))


def after_close(
    will: WillMessage | None,
    now_us: int,
    expiry_s: int,
    *,
    reason: int | None,
    ends_session: bool,
) -> PendingWill | None:
    """The will to publish after a connection has closed; None: there is none.

    `reason`: of the client's DISCONNECT; None: there was none. `ends_session`: the session ends with the
    connection, or the client that takes it over starts clean. The delay is the lesser of the will's own delay
    and the session's expiry.
    """
    if will is None or reason == Code.SUCCESS:
        return None
    delay_s = 0 if ends_session else min(will.delay_s, expiry_s)
    return PendingWill(will, now_us + delay_s * SECOND)


def registered_will(will: WillMessage) -> client_will.Will | None:
    """The will as a pool client registers it with its topic's owner; None: it is too large for that."""
    message = client_will.will_message(
        will.topic,
        will.payload,
        will.qos,
        retain=will.retain,
        **mqtt_properties_of(will),
    )
    return client_will.Will(message, will.delay_s) if message.ByteSize() <= client_will.WILL_ROOM else None
