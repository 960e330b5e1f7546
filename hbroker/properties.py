"""The properties of a message besides its topic and payload, once for all functions that take them as keyword
arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, cast

__all__ = ["CoreProperties", "MqttProperties", "Properties", "mqtt_properties_of"]


class MqttProperties(TypedDict, total=False):
    """The properties of MQTT 5 (§3.3.2.3). `expiry_s`: seconds after which the message expires; None: never.
    `payload_format`: 0 or 1 as in MQTT; None: absent."""

    expiry_s: int | None
    content_type: str
    payload_format: int | None
    response_topic: str
    correlation_data: bytes
    user_properties: Sequence[tuple[str, str]]


class Properties(MqttProperties, total=False):
    """What an application may give with a message. `ack_queued`: the owner acknowledges as soon as it has
    queued the message for every subscriber (docs/protocol.md §7.3)."""

    qos: int
    retain: bool
    ack_queued: bool


class CoreProperties(MqttProperties, total=False):
    """What the native core takes besides QoS and RETAIN. `published_at_us`: the time of publication by the
    publisher's clock, in microseconds since the Unix epoch."""

    published_at_us: int
    ack_queued: bool


def mqtt_properties_of(message: object) -> MqttProperties:
    """The MQTT properties of an object that has each of them as an attribute."""
    return cast(MqttProperties, {name: getattr(message, name) for name in MqttProperties.__annotations__})
