"""The part of `hbroker._native` that control logic imports, in plain Python (see tests/conftest.py)."""

from __future__ import annotations

from dataclasses import dataclass

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ControlEvent:
    link: int | None
    source: Address
    packet: bytes
    inbound: bool


@dataclass(frozen=True, slots=True)
class LinkUpEvent:
    link: int
    address: Address
    session: int
    inbound: bool


@dataclass(frozen=True, slots=True)
class LinkDownEvent:
    link: int
    address: Address
    session: int
    inbound: bool
    reason: str


Event = ControlEvent | LinkUpEvent | LinkDownEvent


def topic_is_valid(topic: str) -> bool:
    return 0 < len(topic.encode()) <= 65_535 and not set(topic) & set("+#\0")


def filter_is_valid(filter: str) -> bool:
    levels = filter.split("/")
    alone = all(level in ("+", "#") or not set(level) & set("+#\0") for level in levels)
    return 0 < len(filter.encode()) <= 65_535 and alone and "#" not in levels[:-1]


def topic_matches(filter: str, topic: str) -> bool:
    return _walk(filter, topic, below=False)


def filter_touches(filter: str, subtree: str) -> bool:
    return not subtree or _walk(filter, subtree, below=True)


def _walk(filter: str, topic: str, below: bool) -> bool:
    """Whether the filter matches the topic, or, with `below`, a topic at or below it."""
    wanted, given = filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for index, level in enumerate(given):
        if index < len(wanted) and wanted[index] == "#":
            return True
        if index >= len(wanted) or wanted[index] not in ("+", level):
            return False
    return below or len(wanted) == len(given) or wanted[len(given) :] == ["#"]
