"""Which subscriptions may touch a subtree, by the first levels that their filters name (§5.4, §6.3).

A node may hold hundreds of thousands of subscriptions, and is asked for those of one subtree whenever a child
comes or goes. Two levels tell most of them apart, at some ten bytes each where many share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

__all__ = ["FilterIndex"]

_Entry: TypeAlias = int | tuple[int, tuple[str, str]]
_Bucket: TypeAlias = _Entry | dict[_Entry, None]
"""Most buckets of most networks have one entry."""

_ANY: Final = ""
"""In place of a level: a wildcard, or nothing."""


class FilterIndex:
    """Entries (a session, or a session and one of its keys) by filter. Each is in it once for each filter."""

    def __init__(self) -> None:
        self._buckets: dict[str, dict[str, _Bucket]] = {}

    def add(self, filter: str, entry: _Entry) -> None:
        """Adds an entry. Adding it again changes nothing."""
        first, second = _levels_of(filter)
        buckets = self._buckets.setdefault(first, {})
        known = buckets.get(second)
        if known is None or known == entry:
            buckets[second] = entry
        elif isinstance(known, dict):
            known[entry] = None
        else:
            buckets[second] = {known: None, entry: None}

    def remove(self, filter: str, entry: _Entry) -> None:
        """Takes out an entry that is there."""
        first, second = _levels_of(filter)
        buckets = self._buckets[first]
        known = buckets[second]
        if isinstance(known, dict) and len(known) > 1:
            del known[entry]
        else:
            del buckets[second]
            if not buckets:
                del self._buckets[first]

    def near(self, subtree: str) -> Iterator[_Entry]:
        """The entries of all filters that touch a subtree, and of some others."""
        for buckets in self._near(subtree):
            for bucket in buckets:
                if isinstance(bucket, dict):
                    yield from bucket
                else:
                    yield bucket

    def _near(self, subtree: str) -> Iterable[Iterable[_Bucket]]:
        if not subtree:
            return [buckets.values() for buckets in self._buckets.values()]
        first, second = _levels_of(subtree)
        near = [self._buckets.get(level, {}) for level in dict.fromkeys((_ANY, first))]
        return [each.values() if second == _ANY else _picked(each, _ANY, second) for each in near]


def _picked(buckets: dict[str, _Bucket], *levels: str) -> list[_Bucket]:
    return [buckets[level] for level in levels if level in buckets]


def _levels_of(filter: str) -> tuple[str, str]:
    """The first two levels, each as far as the filter names it."""
    first, _, rest = filter.partition("/")
    second = rest.partition("/")[0]
    return _ANY if first in _WILDCARDS else first, _ANY if second in _WILDCARDS else second


_WILDCARDS: Final = frozenset("+#")
