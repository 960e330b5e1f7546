"""A bounded cache whose entries expire: address tokens (§4.2), answers and negative answers (§5.2)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["ExpiringCache"]

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class ExpiringCache(Generic[KeyT, ValueT]):
    """At most `limit` entries, each of which expires. If there is no room, the entry that was put first is
    removed."""

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[KeyT, tuple[ValueT, int]] = {}

    def put(self, key: KeyT, value: ValueT, end: int) -> None:
        """Keeps `value` until the time `end` (microseconds)."""
        self._entries.pop(key, None)
        if len(self._entries) >= self._limit:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (value, end)

    def get(self, now: int, key: KeyT) -> ValueT | None:
        """The value; None: there is none, or it has expired."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, end = entry
        if end <= now:
            del self._entries[key]
            return None
        return value

    def has_room(self, now: int) -> bool:
        """Whether another entry removes none that has not expired."""
        if len(self._entries) >= self._limit:
            self._entries = {key: entry for key, entry in self._entries.items() if entry[1] > now}
        return len(self._entries) < self._limit

    def drop(self, key: KeyT, value: ValueT) -> None:
        """Removes the entry, if its value is this very object."""
        entry = self._entries.get(key)
        if entry is not None and entry[0] is value:
            del self._entries[key]

    def discard(self, key: KeyT) -> None:
        """Removes the entry, if there is one."""
        self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)
