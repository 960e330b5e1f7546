"""Reason codes of MQTT.

Every decision uses the codes of MQTT 5. The native core translates them for earlier versions: these have six
return codes of CONNACK, no DISCONNECT of a server, and one failure code in SUBACK.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["MQTT_5", "Code", "suback_code"]

MQTT_5: Final = 5


class Code(IntEnum):
    """The reason codes of MQTT 5 §2.4 that a server decides on."""

    SUCCESS = 0x00
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    UNSPECIFIED_ERROR = 0x80
    PROTOCOL_ERROR = 0x82
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    USE_ANOTHER_SERVER = 0x9C
    CONNECTION_RATE_EXCEEDED = 0x9F


_FAILED: Final = 0x80


def suback_code(version: int, code: int) -> int:
    """The SUBACK code of one filter in this version: a granted QoS, or a failure (MQTT 3.1.1 §3.9.3)."""
    return code if version >= MQTT_5 or code < _FAILED else _FAILED
