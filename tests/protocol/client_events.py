"""The native core's names that the client imports, as plain Python, for tests that run without the core.

The events are always these classes: the core's own cannot be made from Python. Where the core is not built, a
module with them takes its place.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from types import ModuleType

import pytest

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ControlEvent:
    link: int | None
    source: Address
    packet: bytes
    inbound: bool = False


@dataclass(frozen=True, slots=True)
class LinkUpEvent:
    link: int
    address: Address
    session: int = 1
    inbound: bool = False


@dataclass(frozen=True, slots=True)
class LinkDownEvent:
    link: int
    address: Address
    session: int = 1
    inbound: bool = False
    reason: str = "timeout"


@dataclass(frozen=True, slots=True)
class UnresolvedEvent:
    topic: str
    start: Address | None


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    sequence: int
    topic: str
    reason: int


@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    payload: bytes = b""
    qos: int = 0
    subscriptions: list[int] = field(default_factory=list)


Event = ControlEvent | LinkUpEvent | LinkDownEvent | UnresolvedEvent | PublishedEvent

_EVENTS = (ControlEvent, LinkUpEvent, LinkDownEvent, UnresolvedEvent, PublishedEvent)


class NativeError(Exception):
    pass


def topic_is_valid(topic: str) -> bool:
    return bool(topic) and not set(topic) & set("+#\0")


def filter_is_valid(filter: str) -> bool:
    return bool(filter) and "\0" not in filter and "#" not in filter[:-1]


def filter_touches(filter: str, subtree: str) -> bool:
    """Whether a topic at or below the subtree can match (§7.1)."""
    if not subtree:
        return True
    wanted, given = filter.split("/"), subtree.split("/")
    for index, level in enumerate(given):
        if index >= len(wanted):
            return False
        if wanted[index] == "#":
            return index > 0 or not level.startswith("$")
        if wanted[index] not in ("+", level):
            return False
    return True


def stand_in() -> None:
    """Puts a module in the place of a core that is not built."""
    if importlib.util.find_spec("hbroker") and "hbroker._native" not in sys.modules:
        try:
            import hbroker._native  # noqa: F401
        except ImportError:
            sys.modules["hbroker._native"] = ModuleType("hbroker._native")
    native = sys.modules["hbroker._native"]
    for value in (*_EVENTS, Message, NativeError, topic_is_valid, filter_is_valid):
        if not hasattr(native, value.__name__):
            setattr(native, value.__name__, value)
    for name, value in (("Event", Event), ("Config", object), ("Endpoint", object), ("VERSION", "0")):
        if not hasattr(native, name):
            setattr(native, name, value)


def use_plain_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the control recognise the events of this module."""
    from hbroker.protocol import client

    for event in _EVENTS:
        monkeypatch.setattr(client, event.__name__, event)


stand_in()
