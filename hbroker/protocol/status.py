"""The status of a node, as retained messages in its own `$SYS` subtree.

There are three topics: one about the node as a whole, one about its sessions (§7.8), and one about the topics
with the most messages. A topic is published just before a SUBSCRIBE that matches it is stored, so the first
message of a subscriber is recent. From then on it is published every `PERIOD` while it has a subscriber.
Without subscribers it is not published.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hbroker._native import topic_matches
from hbroker.protocol import timers
from hbroker.protocol.core import NodeCore
from hbroker.protocol.ownership.jurisdiction import STATUS_ROOT
from hbroker.protocol.sessions.session_table import SessionTable

__all__ = [
    "MOST_SESSIONS",
    "NO_PROCESS",
    "PERIOD",
    "ProcessFacts",
    "StatusTopic",
    "session_counters",
    "split_drops",
]

PERIOD: Final = 10 * timers.SECOND
FRESH: Final = timers.SECOND // 50
"""If the last status is not older than this (microseconds), a SUBSCRIBE causes no new one. So a client that
subscribes again and again does not use up the node's time."""
MOST_SESSIONS: Final = 1_000
"""The most sessions in one message. Those with the longest queues come first."""


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """What only the process of a node knows. Each returns entries of a status. `usage`: of the process.
    `hottest_topics`: the topics with the most messages (docs/telemetry.md)."""

    usage: Callable[[], Mapping[str, object]]
    hottest_topics: Callable[[], Mapping[str, object]]


NO_PROCESS: Final = ProcessFacts(dict, dict)
"""For a node that has no process of its own."""


class StatusTopic:
    """The topic `$SYS/nodes/<name>/<leaf>`. `content(now)` returns its content, which becomes a JSON
    object."""

    def __init__(
        self, name: str, leaf: str, core: NodeCore, content: Callable[[int], Mapping[str, object]], qos: int
    ) -> None:
        self.topic: Final = f"{STATUS_ROOT}/{name}/{leaf}"
        self._core = core
        self._content = content
        self._qos = qos
        self._due_at: int | None = None
        self._published_at: int | None = None

    def concerns(self, filter: str) -> bool:
        """Whether a filter matches the topic."""
        return topic_matches(filter, self.topic)

    def refresh(self, now: int) -> None:
        """As `publish`, unless the last status is recent (`FRESH`)."""
        if self._published_at is None or now - self._published_at >= FRESH:
            self.publish(now)

    def publish(self, now: int) -> None:
        """Publishes the retained status, and sets the time of the next one."""
        self._published_at = now
        self._core.publish(self.topic, json.dumps(self._content(now)).encode(), self._qos, True)
        self._due_at = now + PERIOD

    def is_due(self, now: int) -> bool:
        """Whether to publish now. Without a subscriber it does not become due again by itself."""
        if self._due_at is None or now < self._due_at:
            return False
        self._due_at = None
        return self._core.matching(self.topic) > 0

    def poll_timeout(self) -> int | None:
        """When to ask `is_due` next, in microseconds; None: never."""
        return self._due_at


def session_counters(core: NodeCore, sessions: SessionTable) -> list[dict[str, object]]:
    """The counters of each session: accepted = delivered + expired + dropped + queued (§7.8).

    A session is listed by its client's name, because its id is a secret.
    """
    found = []
    for session in core.sessions(MOST_SESSIONS):
        known = sessions.get(session.session)
        state = "offline" if not session.connected else "stalled" if session.stalled else "connected"
        found.append(
            {
                "client": "" if known is None else known.client,
                "state": state,
                "accepted": session.accepted,
                "delivered": session.delivered,
                "expired": session.expired,
                "dropped": dict(session.dropped),
                "queued": session.queued,
                "queued_bytes": session.queued_bytes,
            }
        )
    return found


def split_drops(counters: dict[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """(drops by reason, all other counters)."""
    prefix = "drop."
    drops = {name.removeprefix(prefix): n for name, n in counters.items() if name.startswith(prefix)}
    return drops, {name: n for name, n in counters.items() if not name.startswith(prefix)}
