"""Reads values of a scenario that a topology does not have: fractions, times of day, choices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import yaml

from hbroker.topology.document import Report, listed

from .settings import Size, Transport

__all__ = ["Reader"]

T = TypeVar("T")

_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
MAX_PAYLOAD: Final = 64 << 20


class Reader:
    """The values of one mapping. Notes errors, and goes on with the default."""

    def __init__(self, report: Report, node: yaml.Node, label: str, keys: tuple[str, ...]) -> None:
        self.report = report
        self.node = node
        self.label = label
        self._values: Mapping[str, yaml.Node] = report.mapping(node, label, keys)
        self._is_mapping = isinstance(node, yaml.MappingNode)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def at(self, key: str) -> yaml.Node:
        """The node of a key's value; the mapping's node if it has no such key."""
        return self._values.get(key, self.node)

    def error(self, key: str, message: str, remedy: str) -> None:
        """Notes an error in a value."""
        self.report.error(self.at(key), f"{self.label}: {message}", remedy)

    def require(self, *keys: str) -> None:
        """Notes keys that are missing."""
        for key in keys:
            if self._is_mapping and key not in self._values:
                self.report.error(self.node, f"{self.label} has no `{key}`", f"add `{key}: …`")

    def text(self, key: str, default: str = "") -> str:
        """A text."""
        if key not in self._values:
            return default
        return self.report.text(self._values[key], f"{self.label}: {key}") or default

    def truth(self, key: str, default: bool = False) -> bool:
        """A truth value."""
        if key not in self._values:
            return default
        found = self.report.truth(self._values[key], f"{self.label}: {key}")
        return default if found is None else found

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number."""
        if key not in self._values:
            return default
        found = self.report.integer(self._values[key], f"{self.label}: {key}", low, high)
        return default if found is None else found

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        node = self._values.get(key)
        if node is None:
            return default
        try:
            if not isinstance(node, yaml.ScalarNode) or node.tag.rpartition(":")[2] not in ("int", "float"):
                raise ValueError
            value = float(node.value)
            if not low <= value <= high:
                raise ValueError
        except ValueError:
            shown = repr(str(node.value)[:20]) if isinstance(node, yaml.ScalarNode) else "no number"
            self.error(key, f"{key} is {shown}", f"write a number from {low:g} to {high:g}")
            return default
        return value

    def clock(self, key: str, default: float) -> float:
        """A time of day, in seconds since midnight."""
        found = _CLOCK.fullmatch(self.text(key)) if key in self._values else None
        if found is not None:
            return int(found[1]) * 3600.0 + int(found[2]) * 60.0
        if key in self._values:
            self.error(key, "not a time of day", 'write it in quotes, as in `"18:30"`')
        return default

    def transport(self, key: str, default: Transport) -> Transport:
        """How a client connects to the network."""
        text = self.text(key, default.value)
        try:
            return Transport(text)
        except ValueError:
            self.error(key, f"{text!r} is no way into the network", f"write one of {_choices()}")
            return default

    def size(self, key: str, default: Size) -> Size:
        """A number of bytes, or `[least, most]`."""
        node = self._values.get(key)
        if node is None:
            return default
        ends = node.value if isinstance(node, yaml.SequenceNode) else [node, node]
        if len(ends) != 2:
            self.error(key, f"{key} has {len(ends)} numbers", "write one, or `[least, most]`")
            return default
        low, high = (self.report.integer(end, f"{self.label}: {key}", 0, MAX_PAYLOAD) for end in ends)
        if low is None or high is None:
            return default
        if low > high:
            self.error(key, f"{low} is over {high}", "write the smaller one first")
            return default
        return Size(low, high)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, or none."""
        if key not in self._values:
            return ()
        items = self.report.items(self._values[key], f"{self.label}: {key}", "- <text>")
        found = (self.report.text(item, f"{self.label}: {key}") for item in items)
        return tuple(text for text in found if text)

    def list(self, key: str, read: Callable[[yaml.Node, int], T], example: str) -> list[T]:
        """Reads each item of a list with `read`, which gets its number from 1."""
        if key not in self._values:
            return []
        items = self.report.items(self._values[key], key, example)
        return [read(item, number) for number, item in enumerate(items, 1)]

    def named(self, key: str, read: Callable[[yaml.Node, str], T]) -> dict[str, T]:
        """Reads the values of a mapping whose keys are names with `read`, which gets the name."""
        node = self._values.get(key)
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            self.error(key, f"{key} is not a mapping", "write `name: …` lines")
            return {}
        names = tuple(name.value for name, _ in node.value if isinstance(name, yaml.ScalarNode))
        values = self.report.mapping(node, f"{self.label}: {key}", names)
        return {name: read(value, name) for name, value in values.items()}


def _choices() -> str:
    return listed(tuple(transport.value for transport in Transport))
