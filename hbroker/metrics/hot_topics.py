"""The topics with the most messages, as nodes say them on `$SYS/nodes/<name>/topics` (docs/telemetry.md)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

__all__ = ["HotTopics", "topic_rates"]

MOST_NAMED: Final = 50
"""Topics that the metrics name. All others together are `other`."""
_COUNTS: Final = ("messages_in", "messages_out", "bytes_in", "bytes_out")
_MOST_TOPICS: Final = 100


@dataclass(frozen=True, slots=True)
class HotTopics:
    """The topics of a node with the most messages in the last seconds (docs/telemetry.md): for each second,
    by the names of the counts: `messages_in`, `bytes_in`, `messages_out`, `bytes_out`. `others`: all other
    topics together."""

    topics: dict[str, dict[str, float]]
    others: dict[str, float]

    @classmethod
    def parse(cls, status: Mapping[str, Any]) -> Self:
        """Reads what a node says of itself. What is malformed is left out."""
        seconds, listed = status.get("seconds"), status.get("topics")
        if not isinstance(seconds, int | float) or seconds <= 0 or not isinstance(listed, list):
            return cls({}, {})
        entries = [each for each in listed if isinstance(each, dict) and isinstance(each.get("topic"), str)]
        others = status.get("others")
        return cls(
            {each["topic"]: _per_second(each, seconds) for each in entries[:_MOST_TOPICS]},
            _per_second(others, seconds) if isinstance(others, dict) else {},
        )


def topic_rates(nodes: Iterable[HotTopics]) -> dict[str, tuple[float, float]]:
    """The messages received and sent of the hottest topics of these nodes together, for each second, and
    those of `other`."""
    sums: dict[str, tuple[float, float]] = {}
    other = 0.0, 0.0
    for found in nodes:
        other = _added(other, found.others)
        for topic, counts in found.topics.items():
            sums[topic] = _added(sums.get(topic, (0.0, 0.0)), counts)
    hottest = heapq.nlargest(MOST_NAMED, sums, key=lambda topic: sum(sums[topic]))
    named = {topic: sums.pop(topic) for topic in hottest}
    received, sent = (sum(each) for each in zip(other, *sums.values(), strict=True))
    return {**named, "other": (received, sent)}


def _added(before: tuple[float, float], counts: dict[str, float]) -> tuple[float, float]:
    return before[0] + counts.get("messages_in", 0.0), before[1] + counts.get("messages_out", 0.0)


def _per_second(counts: dict[str, Any], seconds: float) -> dict[str, float]:
    named = {name: counts.get(name) for name in _COUNTS}
    return {name: value / seconds for name, value in named.items() if isinstance(value, int | float)}
