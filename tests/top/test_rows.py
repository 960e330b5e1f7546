"""What `hbroker top` shows of what nodes say, well-formed or not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from hbroker._native import Message
from hbroker.cli.top import rows
from hbroker.operations.live_network import Event, LiveNetwork
from hbroker.runtime.client.async_client import Connecting


class Said:
    """A message that a node has published about itself."""

    def __init__(self, topic: str, content: object) -> None:
        self.topic, self.payload = topic, json.dumps(content).encode()


def told(*messages: Said) -> LiveNetwork:
    live = LiveNetwork(cast(Callable[[], Connecting], None))
    for message in messages:
        live._take(cast(Message, message), time.monotonic())
    return live


def status(name: str, **fields: Any) -> Said:
    return Said(f"$SYS/nodes/{name}/status", {"name": name, "at_us": 0, **fields})


def test_nodes_are_a_tree_or_by_load() -> None:
    counters = {"messages_in": 0, "messages_out": 0, "bytes_in": 0, "bytes_out": 0, "cpu_s": 0.0}
    busy = {**counters, "messages_in": 5_000, "bytes_out": 1_000, "cpu_s": 0.5}
    live = told(
        status("root", subtree="", parent=None, **counters),
        status("kitchen", subtree="home/kitchen", parent="root", **counters),
        status("kitchen", subtree="home/kitchen", parent="root", **{**busy, "at_us": 1_000_000}),
    )
    tree = rows.node_rows(live, by_load=False)
    assert [(key, cells[0], cells[1]) for key, cells in tree] == [
        ("root", "root", '""'),
        ("kitchen", "└─ kitchen", "home/kitchen"),
    ]
    assert tree[1][1][2:5] == ("5.0k", "0", "50%")
    assert [key for key, _ in rows.node_rows(live, by_load=True)] == ["kitchen", "root"]
    assert all(len(cells) == len(rows.NODE_COLUMNS) for _, cells in tree)


def test_what_waits_for_connected_subscribers_is_lag() -> None:
    counters = {"messages_in": 0, "messages_out": 0, "bytes_in": 0, "cpu_s": 0.0}
    waiting = {"queued_bytes": 6_000, "offline_bytes": 1_000}
    live = told(
        status("a", **counters, bytes_out=0, **waiting),
        status("a", **counters, bytes_out=1_000, **waiting, **{"at_us": 1_000_000}),
        status("b", **counters, bytes_out=0, **waiting),
        status("c", queued_bytes=1_000, offline_bytes=1_000),
    )
    assert {key: cells[6] for key, cells in rows.node_rows(live, by_load=False)} == {
        "a": "5.00 s",
        "b": "∞",
        "c": "0",
    }


def test_topics_and_sessions_with_most_come_first() -> None:
    topics = [
        {"topic": "slow", "messages_in": 10, "messages_out": 0, "bytes_in": 0, "bytes_out": 0},
        {"topic": "fast", "messages_in": 1_000, "messages_out": 5_000, "bytes_in": 1 << 20, "bytes_out": 0},
    ]
    sessions = [
        {"client": "idle", "state": "connected", "queued": 0},
        {"client": "away", "state": "offline", "queued": 12_345, "dropped": {"queue_full": 3, "x": "y"}},
        {"state": "offline"},
    ]
    live = told(
        status("root"),
        Said("$SYS/nodes/root/topics", {"name": "root", "seconds": 10, "topics": topics, "others": {}}),
        Said("$SYS/nodes/root/sessions", {"name": "root", "sessions": sessions}),
    )
    assert [cells[:3] for _, cells in rows.topic_rows(live)] == [
        ("fast", "root", "100"),
        ("slow", "root", "1"),
    ]
    assert [(cells[0], cells[3], cells[6]) for _, cells in rows.session_rows(live)] == [
        ("away", "12.3k", "3"),
        ("idle", "0", "0"),
    ]


def test_a_status_of_wrong_types_harms_nobody() -> None:
    live = told(
        status("root", subtree=7, drops=[1], rss_bytes="x", queued_messages=None),
        Said("$SYS/nodes/root/sessions", {"name": "root", "sessions": "none"}),
        Said("$SYS/nodes/root/topics", {"name": "root", "seconds": 0}),
    )
    (row,) = rows.node_rows(live, by_load=False)
    assert row[1][5] == "0"
    assert rows.session_rows(live) == rows.topic_rows(live) == []
    assert "1 node " in rows.summary(live, live.totals())


def test_events_are_newest_first() -> None:
    events = [
        Event(1, "audit", {"time": "2026-11-29T10:00:01.000Z", "node": "root", "event": "joined", "why": ""}),
        Event(2, "move", {"time": "2026-11-29T10:00:02.000Z", "state": "done", "steps": []}),
    ]
    assert [cells for _, cells in rows.event_rows(events)] == [
        ("10:00:02", "", "move", "state=done"),
        ("10:00:01", "root", "joined", ""),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1, "1"), (0.25, "0.2"), (99.4, "99.4"), (999, "999"), (999.6, "1.0k"), (12_345, "12.3k")],
)
def test_amounts_are_short(value: float, text: str) -> None:
    assert rows.amount(value) == text
    assert rows.amount(1.5e15) == "1500T"
