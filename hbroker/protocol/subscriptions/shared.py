"""Shared subscriptions: `$share/group/filter` as users write it, and as it travels (§6.5).

A group is a name of one level, as in MQTT 5 §4.8.2. On the wire, and everywhere below the API, group and
filter are separate, because discovery uses the filter alone.
"""

from __future__ import annotations

from typing import Final

from hbroker._native import filter_is_valid

__all__ = ["PREFIX", "group_is_valid", "joined", "split"]

PREFIX: Final = "$share/"


def split(text: str) -> tuple[str, str] | None:
    """The (group, filter) of a user's filter; the group is empty if it is not shared. None: it is not
    valid."""
    if not text.startswith(PREFIX):
        return ("", text) if filter_is_valid(text) else None
    group, slash, filter = text.removeprefix(PREFIX).partition("/")
    is_valid = bool(slash) and bool(group) and group_is_valid(group) and filter_is_valid(filter)
    return (group, filter) if is_valid else None


def joined(group: str, filter: str) -> str:
    """The inverse of `split`."""
    return f"{PREFIX}{group}/{filter}" if group else filter


def group_is_valid(group: str) -> bool:
    """Whether a group may have this name. The empty name, for no group, is valid."""
    return not group or (filter_is_valid(group) and not any(sign in group for sign in "/+#"))
