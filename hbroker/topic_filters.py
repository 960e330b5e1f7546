"""Relations of two topic filters (MQTT 5 §4.7)."""

from __future__ import annotations

__all__ = ["covers", "overlap"]


def overlap(one: str, other: str) -> bool:
    """Whether some topic matches both filters."""
    if _is_hidden(one, other) or _is_hidden(other, one):
        return False
    return _overlap(_levels(one), _levels(other))


def covers(wide: str, narrow: str) -> bool:
    """Whether every topic that matches `narrow` matches `wide`."""
    if _is_hidden(wide, narrow):
        return False
    return _covers(_levels(wide), _levels(narrow))


def _is_hidden(wild: str, plain: str) -> bool:
    """A wildcard at the first level matches no topic that begins with `$` (MQTT 5 §4.7.2)."""
    return wild[:1] in ("+", "#") and plain.startswith("$")


def _levels(filter: str) -> list[str]:
    """The levels of a filter. No topic is empty (MQTT 5 §4.7.3), so `/#` and `/+/#` match the same topics."""
    return ["", "+", "#"] if filter == "/#" else filter.split("/")


def _overlap(one: list[str], other: list[str]) -> bool:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a == "#" or b == "#":
            return True
        if a != b and "+" not in (a, b):
            return False
        if index + 1 == min(len(one), len(other)):
            break
    longer = one if len(one) > len(other) else other
    return len(one) == len(other) or longer[min(len(one), len(other)) :] == ["#"]


def _covers(wide: list[str], narrow: list[str]) -> bool:
    for index, level in enumerate(wide):
        if level == "#":
            return True
        if index == len(narrow):
            return False
        if narrow[index] == "#" or (level != "+" and level != narrow[index]):
            return False
    return len(wide) == len(narrow)
