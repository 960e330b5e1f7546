"""A node's account of itself, as a retained message in its own `$SYS` subtree (DESIGN §4, §8).

It is refreshed just before a SUBSCRIBE that touches it is stored, so a reader's first message is never
stale, and from then on every `PERIOD` while anybody is subscribed. Nobody reads, nobody writes.
"""

from __future__ import annotations

import json
from typing import Final

from hbroker._native import topic_matches
from hbroker.protocol import timers
from hbroker.protocol.admission import STATUS_ROOT
from hbroker.protocol.core import NodeCore

__all__ = ["PERIOD", "StatusTopic", "split_drops"]

PERIOD: Final = 10 * timers.SECOND


class StatusTopic:
    """`$SYS/nodes/<name>/status`."""

    def __init__(self, name: str, core: NodeCore) -> None:
        self.topic: Final = f"{STATUS_ROOT}/{name}/status"
        self._core = core
        self._due_at: int | None = None

    def concerns(self, filter: str) -> bool:
        return topic_matches(filter, self.topic)

    def publish(self, now: int, status: dict[str, object]) -> None:
        """Replaces the retained status; the next is due while somebody listens."""
        self._core.publish(self.topic, json.dumps(status).encode(), 0, True)
        self._due_at = now + PERIOD

    def is_due(self, now: int) -> bool:
        """Whether to publish now. With nobody subscribed it is never due again by itself."""
        if self._due_at is None or now < self._due_at:
            return False
        self._due_at = None
        return self._core.matching(self.topic) > 0

    def poll_timeout(self) -> int | None:
        return self._due_at


def split_drops(counters: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """(drops by reason, all other counters)."""
    prefix = "drop."
    drops = {name.removeprefix(prefix): n for name, n in counters.items() if name.startswith(prefix)}
    return drops, {name: n for name, n in counters.items() if not name.startswith(prefix)}
