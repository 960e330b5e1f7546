"""The audit of a node or a gateway: its events as messages on `$SYS/audit/<name>/<event>` (§5.12).

A process hands over each event that it logs. The record is a JSON object with the event's name and fields.

- Nothing waits for the audit. `MOST_WAITING` records wait until they can be sent; of more, and of more than
  `BURST` and then `A_SECOND` each second, the newest are dropped. So a flood cannot push out what came before
  it. The next record that is sent says how many were dropped.
- The audit causes no events: a record that is refused is counted, and not told.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from hbroker.protocol.timers import SECOND

__all__ = ["AUDIT_ROOT", "MOST_BYTES", "Audit", "audit_topic"]

AUDIT_ROOT: Final = "$SYS/audit"
MOST_WAITING: Final = 1_000
BURST: Final = 1_000
A_SECOND: Final = 50
MOST_BYTES: Final = 900
"""The largest record. With what is around it, it fits a packet (§3.4). Longer texts are cut."""
RETRY: Final = SECOND // 4
"""Microseconds until a record that could not be sent is tried again."""
_EVENT: Final = re.compile(r"[a-z][a-z_]{0,39}")
_CUT: Final = "…"


def audit_topic(name: str, event: str) -> str | None:
    """The topic of an event of a node or a gateway; None: no event has this name."""
    return f"{AUDIT_ROOT}/{name}/{event}" if _EVENT.fullmatch(event) else None


class Audit:
    """The records of one process that were not sent yet. `send(now, event, record)` sends one; False: that is
    not possible now."""

    def __init__(self, send: Callable[[int, str, bytes], bool]) -> None:
        self._send = send
        self._waiting: deque[tuple[str, dict[str, object]]] = deque()
        self._allowance = float(BURST)
        self._allowed_at = 0
        self._dropped = 0
        """Since the last record that was sent."""
        self._retry_at: int | None = None

    # Change

    def add(self, now: int, event: str, fields: Mapping[str, object]) -> None:
        """Sends an event, at once if that is possible."""
        self._allowance = min(BURST, self._allowance + A_SECOND * (now - self._allowed_at) / SECOND)
        self._allowed_at = now
        if self._allowance < 1 or len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        self._allowance -= 1
        self._waiting.append((event, dict(fields)))
        if self._retry_at is None:
            self.handle_timeout(now)

    def count_dropped(self) -> None:
        """A record that was sent did not arrive."""
        self._dropped += 1

    def handle_timeout(self, now: int) -> None:
        """Sends what waits."""
        if self._retry_at is not None and now < self._retry_at:
            return
        self._retry_at = None
        while self._waiting:
            event, fields = self._waiting[0]
            told = {**fields, "dropped": self._dropped} if self._dropped else fields
            if not self._send(now, event, _record(told)):
                self._retry_at = now + RETRY
                return
            self._waiting.popleft()
            self._dropped = 0

    # Read

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: nothing waits."""
        return self._retry_at


def _record(fields: Mapping[str, object]) -> bytes:
    """The fields as JSON. The longest texts are cut until it has `MOST_BYTES` at most."""
    known = dict(fields)
    while len(record := json.dumps(known, ensure_ascii=False).encode("utf-8", "replace")) > MOST_BYTES:
        longest = max(known, key=lambda key: len(str(known[key])))
        text = str(known[longest])
        known[longest] = text[: len(text) // 2] + _CUT
    return record
