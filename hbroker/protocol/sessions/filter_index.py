"""An index of the subscriptions that may touch a subtree, by the first two levels of their filters (§5.4,
§6.3).

A node may have hundreds of thousands of subscriptions. Whenever a child joins or leaves, it needs those that
touch one subtree. Two levels distinguish most of them, and cost some ten bytes for each if many share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

__all__ = ["FilterIndex"]

_Entry: TypeAlias = int | tuple[int, tuple[str, str]]
_Bucket: TypeAlias = _Entry | dict[_Entry, None]
"""Most buckets of most networks have one entry, which then stands alone."""

_ANY: Final = ""
"""Stands for a level that is a wildcard or absent."""


class FilterIndex:
    """Entries by filter. An entry is a session, or a session and one of its keys; it is here once for each
    filter."""

    def __init__(self) -> None:
        self._buckets: dict[str, dict[str, _Bucket]] = {}

    def add(self, filter: str, entry: _Entry) -> None:
        """Adds an entry. Idempotent."""
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
        """Removes an entry, which must be there."""
        first, second = _levels_of(filter)
        buckets = self._buckets[first]
        known = buckets[second]
        if isinstance(known, dict) and len(known) > 1:
            del known[entry]
        else:
            del buckets[second]
            if not buckets:
                del self._buckets[first]

    def candidates(self, subtree: str) -> Iterator[_Entry]:
        """The entries of all filters that touch a subtree, and of some others."""
        for buckets in self._candidate_buckets(subtree):
            for bucket in buckets:
                if isinstance(bucket, dict):
                    yield from bucket
                else:
                    yield bucket

    def _candidate_buckets(self, subtree: str) -> Iterable[Iterable[_Bucket]]:
        if not subtree:
            return [buckets.values() for buckets in self._buckets.values()]
        first, second = _levels_of(subtree)
        near = [self._buckets.get(level, {}) for level in dict.fromkeys((_ANY, first))]
        return [each.values() if second == _ANY else _picked(each, _ANY, second) for each in near]


def _picked(buckets: dict[str, _Bucket], *levels: str) -> list[_Bucket]:
    return [buckets[level] for level in levels if level in buckets]


def _levels_of(filter: str) -> tuple[str, str]:
    """The first two levels of a filter; a wildcard or an absent level as `_ANY`."""
    first, _, rest = filter.partition("/")
    second = rest.partition("/")[0]
    return _ANY if first in _WILDCARDS else first, _ANY if second in _WILDCARDS else second


_WILDCARDS: Final = frozenset("+#")
