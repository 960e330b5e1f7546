"""The rows of the tables of `hbroker top`: what nodes say of themselves, as text."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from hbroker.cli.output import duration
from hbroker.metrics.families import LOSSES
from hbroker.operations.live_network import Event, KnownNode, LiveNetwork, Totals, lag_s, number_of
from hbroker.operations.node_statuses import drawing, in_order

__all__ = [
    "EVENT_COLUMNS",
    "NODE_COLUMNS",
    "NUMBERS",
    "SESSION_COLUMNS",
    "TOPIC_COLUMNS",
    "Row",
    "amount",
    "event_rows",
    "node_rows",
    "session_rows",
    "summary",
    "topic_rows",
]

Row = tuple[str, tuple[str, ...]]
"""The key of a row, which stays while its cells change, and its cells."""

NODE_COLUMNS: Final = (
    *("NODE", "SUBTREE", "IN/s", "OUT/s", "CPU", "QUEUED", "LAG", "SESSIONS", "OFFLINE", "LOST", "MiB"),
)
TOPIC_COLUMNS: Final = ("TOPIC", "NODE", "IN/s", "OUT/s", "BYTES IN/s", "BYTES OUT/s")
SESSION_COLUMNS: Final = ("CLIENT", "NODE", "STATE", "QUEUED", "BYTES", "DELIVERED", "DROPPED")
EVENT_COLUMNS: Final = ("TIME", "NODE", "EVENT", "")
NUMBERS: Final = frozenset(
    {*NODE_COLUMNS[2:], *TOPIC_COLUMNS[2:], *SESSION_COLUMNS[3:]},
)
"""The columns with numbers."""
_MOST_ROWS: Final = 500
_UNITS: Final = ("", "k", "M", "G", "T")


def node_rows(live: LiveNetwork, *, by_load: bool) -> list[Row]:
    """The nodes: as a tree, or those with the most messages first."""
    nodes, now = live.nodes(), time.monotonic()
    ordered = in_order([each.status for each in nodes.values()])
    labels = drawing([each.status for each in nodes.values()])
    if by_load:
        ordered.sort(key=lambda status: -_messages(nodes[str(status["name"])]))
        labels = [str(status["name"]) for status in ordered]
    names = [str(status["name"]) for status in ordered]
    return [
        (name, _node(label, nodes[name], is_silent=nodes[name].is_silent(now)))
        for name, label in zip(names, labels, strict=True)
    ]


def topic_rows(live: LiveNetwork) -> list[Row]:
    """The topics with the most messages, the hottest first, and of each node all others together."""
    found = [
        (topic, node, counts)
        for node, each in live.hot_topics().items()
        for topic, counts in (*each.topics.items(), *((("(others)", each.others),) if each.others else ()))
    ]
    found.sort(key=lambda each: -_sum(each[2]))
    return [
        (f"{node}\0{topic}", (topic, node, *(amount(counts.get(key, 0.0)) for key in _TOPIC_KEYS)))
        for topic, node, counts in found[:_MOST_ROWS]
    ]


def session_rows(live: LiveNetwork) -> list[Row]:
    """The sessions with the most messages queued, the longest queues first."""
    found = [(node, each) for node, each in live.sessions() if isinstance(each.get("client"), str)]
    found.sort(key=lambda each: -number_of(each[1], "queued"))
    return [
        (f"{node}\0{each['client']}\0{number}", _session(node, each))
        for number, (node, each) in enumerate(found[:_MOST_ROWS])
    ]


def event_rows(events: Iterable[Event]) -> list[Row]:
    """The last events, the newest first."""
    newest = list(events)[-_MOST_ROWS:][::-1]
    return [(str(each.number), _event(each)) for each in newest]


def summary(live: LiveNetwork, totals: Totals) -> str:
    """The network as a whole, in a line."""
    nodes, now = live.nodes(), time.monotonic()
    silent = sorted(name for name, each in nodes.items() if each.is_silent(now))
    counts, rates = totals.counts, totals.rates
    parts = [
        f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}",
        f"in {amount(rates['messages_in'])}/s",
        f"out {amount(rates['messages_out'])}/s",
        f"queued {amount(counts['queued_messages'])}",
        f"sessions {amount(counts['sessions'])} (+{amount(counts['sessions_offline'])} offline)",
        f"cpu {rates['cpu_s']:.0%}",
    ]
    if silent:
        parts.append(f"SILENT: {', '.join(silent[:5])}{' …' if len(silent) > 5 else ''}")
    return "   ".join(parts)


def amount(value: float) -> str:
    """A number with three digits or more, and a unit: 12.3k."""
    magnitude = 0
    while value >= 999.5 and magnitude < len(_UNITS) - 1:
        value, magnitude = value / 1000, magnitude + 1
    digits = 0 if value >= 99.5 or (not magnitude and float(value).is_integer()) else 1
    return f"{value:.{digits}f}{_UNITS[magnitude]}"


_TOPIC_KEYS: Final = ("messages_in", "messages_out", "bytes_in", "bytes_out")


def _node(label: str, known: KnownNode, *, is_silent: bool) -> tuple[str, ...]:
    status, rates = known.status, known.rates
    lag = lag_s(known)
    main = status.get("subtree")
    return (
        f"{label} (silent)" if is_silent else label,
        "-" if main is None else str(main) or '""',
        amount(rates.get("messages_in", 0.0)),
        amount(rates.get("messages_out", 0.0)),
        f"{rates.get('cpu_s', 0.0):.0%}",
        amount(number_of(status, "queued_messages")),
        "∞" if lag is None else duration(lag) if lag else "0",
        amount(number_of(status, "sessions")),
        amount(number_of(status, "sessions_offline")),
        amount(_lost(status.get("drops"))),
        f"{number_of(status, 'rss_bytes') / (1 << 20):.0f}",
    )


def _session(node: str, session: dict[str, Any]) -> tuple[str, ...]:
    dropped = session.get("dropped")
    counts = dropped.values() if isinstance(dropped, dict) else ()
    return (
        str(session["client"]),
        node,
        str(session.get("state", "")),
        amount(number_of(session, "queued")),
        amount(number_of(session, "queued_bytes")),
        amount(number_of(session, "delivered")),
        amount(sum(each for each in counts if isinstance(each, int))),
    )


def _event(event: Event) -> tuple[str, ...]:
    content = dict(event.content)
    at = str(content.pop("time", ""))[11:19]
    node, name = str(content.pop("node", "")), str(content.pop("event", event.kind))
    rest = " ".join(f"{key}={value}" for key, value in content.items() if value not in (None, "", []))
    return at, node, name, rest


def _messages(known: KnownNode) -> float:
    return known.rates.get("messages_in", 0.0) + known.rates.get("messages_out", 0.0)


def _sum(counts: dict[str, float]) -> float:
    return counts.get("messages_in", 0.0) + counts.get("messages_out", 0.0)


def _lost(drops: object) -> int:
    if not isinstance(drops, dict):
        return 0
    return sum(count for reason, count in drops.items() if reason in LOSSES and isinstance(count, int))
