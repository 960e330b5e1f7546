"""`-D command identifier value`: properties of MQTT 5 on the command line.

hbroker has the properties of PUBLISH that describe a message. The others belong to an MQTT connection. They
are refused by name, so that no property is ignored without notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import click

from .flags import Flag, encode_text, whole

__all__ = ["PROPERTY", "Property", "publish_properties"]

_COMMANDS: Final = ("connect", "publish", "pubrel", "subscribe", "unsubscribe", "disconnect", "auth", "will")
_USER_PROPERTY: Final = "user-property"
_OF_PUBLISH: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "content-type": ("content_type", str),
    "correlation-data": ("correlation_data", encode_text),
    "message-expiry-interval": ("expiry_s", whole(0, 0xFFFF_FFFF)),
    "payload-format-indicator": ("payload_format", whole(0, 1)),
    "response-topic": ("response_topic", str),
}
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


class Property(NamedTuple):
    """One property of PUBLISH. `value`: a pair for a user property; otherwise the text of the command
    line."""

    identifier: str
    value: str | tuple[str, str]


def publish_properties(properties: Iterable[Property]) -> dict[str, Any]:
    """The arguments of `Client.publish` for these properties. Raises UsageError."""
    arguments: dict[str, Any] = {}
    pairs: list[tuple[str, str]] = []
    for identifier, value in properties:
        if isinstance(value, tuple):
            pairs.append(value)
            continue
        name, convert = _OF_PUBLISH[identifier]
        try:
            converted = convert(value)
        except ValueError as error:
            raise click.UsageError(f"Property value {error} for property {identifier}.") from None
        if name in arguments:
            raise click.UsageError(f"{identifier} property given twice in --property argument.")
        arguments[name] = converted
    if pairs:
        arguments["user_properties"] = tuple(pairs)
    return arguments


class _PropertyFlag(Flag[tuple[Property, ...]]):
    """Takes three arguments, or four for a user property."""

    def read(self, arguments: Iterator[str]) -> Property:
        command = _next(arguments).lower()
        if command not in _COMMANDS:
            raise click.UsageError("Invalid command given in --property argument.")
        identifier = _next(arguments).lower()
        is_of_publish = identifier in _OF_PUBLISH or identifier == _USER_PROPERTY
        if not is_of_publish and identifier not in _OF_MQTT:
            raise click.UsageError("Invalid property name given in --property argument.")
        if command != "publish" or not is_of_publish:
            raise click.UsageError(f"{identifier} property not allowed for {command} in --property argument.")
        value = _next(arguments)
        return Property(identifier, (value, _next(arguments)) if identifier == _USER_PROPERTY else value)


def _next(arguments: Iterator[str]) -> str:
    text = next(arguments, None)
    if text is None:
        raise click.UsageError("--property argument given but not enough arguments specified.")
    return text


PROPERTY: Final = _PropertyFlag(
    "-D",
    "--property",
    argument="property",
    metavar="publish NAME VALUE",
    nargs=3,
    multiple=True,
    default=(),
    help="a property of MQTT 5: -D publish content-type text/plain",
)
