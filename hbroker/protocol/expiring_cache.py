"""A bounded cache whose entries end: address tokens (§4.2), answers and negative answers (§5.2)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["ExpiringCache"]

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class ExpiringCache(Generic[KeyT, ValueT]):
    """At most `limit` entries, each with an end; a new one pushes out the one that was put first."""

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[KeyT, tuple[ValueT, int]] = {}

    def put(self, key: KeyT, value: ValueT, end: int) -> None:
        """Keeps `value` until the time `end` (µs)."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._limit:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (value, end)

    def get(self, now: int, key: KeyT) -> ValueT | None:
        """The value; None where there is none, or no more."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, end = entry
        if end <= now:
            del self._entries[key]
            return None
        return value

    def drop(self, key: KeyT, value: ValueT) -> None:
        """Forgets the entry, if this very object is its value."""
        entry = self._entries.get(key)
        if entry is not None and entry[0] is value:
            del self._entries[key]

    def discard(self, key: KeyT) -> None:
        """Forgets the entry, if there is one."""
        self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)
