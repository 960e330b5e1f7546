"""`-D command identifier value`: properties of MQTT 5 on the command line.

hbroker has the properties of PUBLISH that describe a message. The others belong to an MQTT connection. They
are refused by name, so that no property is ignored without notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from .flags import Flag, UsageError, whole_number

__all__ = ["PROPERTY", "Property", "publish_properties"]

_COMMANDS: Final = ("connect", "publish", "pubrel", "subscribe", "unsubscribe", "disconnect", "auth", "will")
_OF_PUBLISH: Final = (
    "content-type",
    "correlation-data",
    "message-expiry-interval",
    "payload-format-indicator",
    "response-topic",
    "user-property",
)
_OF_MQTT: Final = (
    "authentication-data",
    "authentication-method",
    "maximum-packet-size",
    "receive-maximum",
    "request-problem-information",
    "request-response-information",
    "session-expiry-interval",
    "subscription-identifier",
    "topic-alias",
    "topic-alias-maximum",
    "will-delay-interval",
)
_MOST_EXPIRY: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Property:
    """One property of PUBLISH. `value`: a pair for a user property; otherwise the text of the command
    line."""

    identifier: str
    value: str | tuple[str, str]


def publish_properties(properties: Iterable[Property]) -> dict[str, Any]:
    """The arguments of `Client.publish` for these properties. Raises UsageError."""
    arguments: dict[str, Any] = {}
    pairs: list[tuple[str, str]] = []
    for property in properties:
        if isinstance(property.value, tuple):
            pairs.append(property.value)
            continue
        name, value = _argument(property.identifier, property.value)
        if name in arguments:
            raise UsageError(f"{property.identifier} property given twice in --property argument.")
        arguments[name] = value
    if pairs:
        arguments["user_properties"] = tuple(pairs)
    return arguments


def _argument(identifier: str, text: str) -> tuple[str, Any]:
    match identifier:
        case "content-type":
            return "content_type", text
        case "correlation-data":
            return "correlation_data", text.encode("utf-8", "surrogateescape")
        case "message-expiry-interval":
            return "expiry_s", _number(identifier, text, _MOST_EXPIRY)
        case "payload-format-indicator":
            return "payload_format", _number(identifier, text, 1)
    return "response_topic", text


def _number(identifier: str, text: str, most: int) -> int:
    number = whole_number(text)
    if number is None or not 0 <= number <= most:
        raise UsageError(f"Property value {text} is not a number from 0 to {most} for property {identifier}.")
    return number


def _read(arguments: Iterator[str]) -> Property:
    command = _next(arguments).lower()
    if command not in _COMMANDS:
        raise UsageError("Invalid command given in --property argument.")
    identifier = _next(arguments).lower()
    if identifier not in _OF_PUBLISH and identifier not in _OF_MQTT:
        raise UsageError("Invalid property name given in --property argument.")
    if command != "publish" or identifier not in _OF_PUBLISH:
        raise UsageError(f"{identifier} property not allowed for {command} in --property argument.")
    value = _next(arguments)
    return Property(identifier, (value, _next(arguments)) if identifier == "user-property" else value)


def _next(arguments: Iterator[str]) -> str:
    text = next(arguments, None)
    if text is None:
        raise UsageError("--property argument given but not enough arguments specified.")
    return text


PROPERTY: Final = Flag(
    ("-D", "--property"),
    _read,
    "a property of MQTT 5: -D publish content-type text/plain",
    "publish NAME VALUE",
)
