"""Times on the command line: a time ago, or a date and time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["WHEN", "time", "when"]

WHEN: Final = "30m, 2h, 1h30m, 3d ago; or a time in ISO 8601, in UTC where it names no zone"
"""What `when` accepts, for a flag's help."""

_AGO: Final = re.compile(r"(?:(?P<d>\d{1,5})d)?(?:(?P<h>\d{1,6})h)?(?:(?P<m>\d{1,8})m)?(?:(?P<s>\d{1,9})s)?")


def when(text: str) -> datetime:
    """A time ago (`30m`, `1h30m`), or a `time`. Raises ValueError."""
    ago = _AGO.fullmatch(text)
    if not text or ago is None:
        return time(text)
    days, hours, minutes, seconds = (int(ago[unit] or 0) for unit in "dhms")
    return datetime.now(UTC) - timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def time(text: str) -> datetime:
    """A time in ISO 8601, such as `2026-03-01T12:00` or `2026-03-01 12:00:00+01:00`; UTC if it has no zone.

    Raises ValueError.
    """
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time: {WHEN}") from None
