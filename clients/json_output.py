"""A message as JSON: `-F %j` has the payload as a string, `-F %J` as JSON.

Names and order are mosquitto_sub's. The result is always valid JSON: with `%j`, bytes of a payload that are
not UTF-8 become U+FFFD; with `%J`, a payload that is not JSON is an error. An object is a tuple of pairs, so
that the order and repeated names are kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

from .received import Received

__all__ = ["NotJson", "render"]

_SECOND_NS: Final = 1_000_000_000


class NotJson(ValueError):
    """The payload of a message is not JSON."""


def render(received: Received, *, is_nested: bool, pretty: bool) -> bytes:
    """The JSON of a message. `is_nested`: the payload is JSON itself; raises NotJson if it is not."""
    payload = _nested(received) if is_nested else received.message.payload.decode("utf-8", "replace")
    members = (*_members(received), ("payload", payload if received.message.payload else None))
    text = _pretty(members, 0) if pretty else _compact(members)
    return text.encode("utf-8", "backslashreplace")  # a lone surrogate is printed as its escape


def _members(received: Received) -> Iterator[tuple[str, Any]]:
    message = received.message
    yield "tst", _timestamp(received.at_ns)
    yield "topic", message.topic
    yield "qos", message.qos
    yield "retain", int(received.is_retained)
    yield "payloadlen", len(message.payload)
    if message.qos:
        yield "mid", received.number
    properties = tuple(_properties(received))
    if properties:
        yield "properties", properties


def _properties(received: Received) -> Iterator[tuple[str, Any]]:
    message = received.message
    if message.content_type:
        yield "content-type", message.content_type
    if message.user_properties:
        yield "user-properties", tuple(message.user_properties)
    if message.response_topic:
        yield "response-topic", message.response_topic
    if message.correlation_data:
        yield "correlation-data", message.correlation_data.decode("utf-8", "replace")
    if message.payload_format is not None:
        yield "payload-format-indicator", message.payload_format
    if message.expiry_s is not None:
        yield "message-expiry-interval", message.expiry_s


def _timestamp(at_ns: int) -> str:
    seconds, rest = divmod(at_ns, _SECOND_NS)
    local = time.localtime(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}.{rest // 1000:06}{time.strftime('%z', local)}"


def _nested(received: Received) -> Any:
    if not received.message.payload:
        return None
    try:
        return json.loads(
            received.message.payload.decode("utf-8"),
            object_pairs_hook=tuple,
            parse_float=_number,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError):
        raise NotJson(f"Message payload is not valid JSON on topic {received.message.topic}.") from None


def _number(text: str) -> int | float:
    """The shortest form of the same number: 1.5 for 1.50, and 1000 for 1e3."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _compact(value: Any) -> str:
    if isinstance(value, tuple):
        return "{" + ",".join(f"{_scalar(name)}:{_compact(member)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    return _scalar(value)


def _pretty(value: Any, depth: int) -> str:
    """One member a line, indented by tabs; arrays in one line."""
    if isinstance(value, tuple):
        return _pretty_object(value, depth + 1)
    if isinstance(value, list):
        return "[" + ", ".join(_pretty(item, depth + 1) for item in value) + "]"
    return _scalar(value)


def _pretty_object(members: Iterable[tuple[str, Any]], depth: int) -> str:
    lines = ",\n".join(
        "\t" * depth + f"{_scalar(name)}:\t{_pretty(member, depth)}" for name, member in members
    )
    return "{\n" + (lines + "\n" if lines else "") + "\t" * (depth - 1) + "}"


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
