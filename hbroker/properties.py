"""What may be said of a message besides its topic and its payload: each property once, for all who pass it on
as keyword arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, cast

__all__ = ["CoreProperties", "MqttProperties", "Properties", "mqtt_properties_of"]


class MqttProperties(TypedDict, total=False):
    """MQTT 5's (§3.3.2.3). `expiry_s`: seconds after which the message is worth nothing; None: never.
    `payload_format`: None: it is not said."""

    expiry_s: int | None
    content_type: str
    payload_format: int | None
    response_topic: str
    correlation_data: bytes
    user_properties: Sequence[tuple[str, str]]


class Properties(MqttProperties, total=False):
    """What an application says. `ack_queued`: acknowledge as soon as it is queued for every subscriber
    (§7.3)."""

    qos: int
    retain: bool
    ack_queued: bool


class CoreProperties(MqttProperties, total=False):
    """What the core is told, beside QoS and the retain flag. `published_at_us`: by the publisher's clock."""

    published_at_us: int
    ack_queued: bool


def mqtt_properties_of(message: object) -> MqttProperties:
    """Those of a message that has each as an attribute."""
    return cast(MqttProperties, {name: getattr(message, name) for name in MqttProperties.__annotations__})
