"""What the API knows of the network, from messages that a node, or somebody else, might send."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import Message
from hbroker.operations.live_network import MOST_EVENTS, MOST_SAMPLES, MOST_WAITING, SILENT_S, LiveNetwork
from hbroker.runtime.client.async_client import Connecting


@dataclass
class Sent:
    """A message, as far as the API reads it."""

    topic: str
    payload: bytes


def network() -> LiveNetwork:
    return LiveNetwork(cast(Callable[[], Connecting], None))


def take(live: LiveNetwork, topic: str, content: object) -> None:
    payload = content if isinstance(content, bytes) else json.dumps(content).encode()
    live._take(cast(Message, Sent(topic, payload)), time.monotonic())


def status(name: str, at_s: float, messages: int) -> dict[str, object]:
    counters = {"messages_out": 0, "bytes_in": 0, "bytes_out": 0, "cpu_s": 0.0}
    return {"name": name, "at_us": round(at_s * 1e6), "messages_in": messages, **counters}


def test_rates_are_those_between_two_statuses() -> None:
    live = network()
    take(live, "$SYS/nodes/a/status", status("a", 100, 1_000))
    take(live, "$SYS/nodes/a/status", status("a", 110, 6_000))
    assert live.nodes()["a"].rates["messages_in"] == 500


def test_rates_are_not_those_of_a_moment() -> None:
    """Somebody asks node a for its status, just after it has published one."""
    live = network()
    for at_s, messages in ((100, 1_000), (110, 6_000), (110.02, 6_100)):
        take(live, "$SYS/nodes/a/status", status("a", at_s, messages))
    assert live.nodes()["a"].rates["messages_in"] == 500
    take(live, "$SYS/nodes/a/status", status("a", 120, 7_000))
    assert live.nodes()["a"].rates["messages_in"] == 100


def test_sums_of_the_last_ten_minutes_are_kept() -> None:
    live = network()
    begin = time.monotonic()
    for second in range(0, 1_200, 10):
        for name in ("a", "b"):
            said = {**status(name, 100 + second, 50 * second), "sessions": 3}
            payload = json.dumps(said).encode()
            live._take(cast(Message, Sent(f"$SYS/nodes/{name}/status", payload)), begin + second)
    samples = live.history()
    assert len(samples) == MOST_SAMPLES
    assert samples[-1].counts["sessions"] == 6
    assert samples[-1].rates["messages_in"] == pytest.approx(100)


def test_a_node_that_was_started_anew_has_no_rates() -> None:
    live = network()
    take(live, "$SYS/nodes/a/status", status("a", 100, 1_000))
    take(live, "$SYS/nodes/a/status", status("a", 110, 5))
    assert live.nodes()["a"].rates == {}


def test_a_node_is_silent_after_a_while() -> None:
    live = network()
    take(live, "$SYS/nodes/a/status", status("a", 100, 0))
    node = live.nodes()["a"]
    assert not node.is_silent(node.seen + SILENT_S)
    assert node.is_silent(node.seen + SILENT_S + 0.1)


def test_nobody_speaks_for_another_node() -> None:
    live = network()
    take(live, "$SYS/nodes/a/status", status("b", 100, 0))
    take(live, "$SYS/audit/a/joined", {"node": "b", "event": "ordered", "child": "c"})
    assert not live.nodes()
    (event,) = live.recent_events()
    assert (event.content["node"], event.content["event"]) == ("a", "joined")


def test_alerts_stand_until_they_are_cleared() -> None:
    live = network()
    topic = "$SYS/analysis/alerts/imbalance/node"
    take(live, topic, {"alert": "imbalance", "state": "raised"})
    assert [each["topic"] for each in live.alerts()] == [topic]
    take(live, topic, {"alert": "imbalance", "state": "cleared"})
    assert live.alerts() == []


@given(
    st.sampled_from(["nodes/a/status", "nodes/a/sessions", "audit/a/x", "analysis/alerts/a/b"]),
    st.one_of(st.binary(), st.recursive(st.none() | st.text() | st.integers(), st.lists)),
)
def test_whatever_a_payload_is_it_is_taken_or_ignored(topic: str, content: object) -> None:
    live = network()
    take(live, f"$SYS/{topic}", content)
    assert list(live.sessions()) == []


@pytest.mark.asyncio
async def test_a_reader_that_is_too_slow_misses_the_oldest_and_is_told() -> None:
    live = network()
    with live.reader() as reader:
        for number in range(MOST_WAITING + 10):
            live.tell("audit", {"number": number})
        first = await reader.next(0)
        assert first is not None
        assert (first.kind, first.content) == ("missed", {"events": 10})
        second = await reader.next(0)
        assert second is not None
        assert second.content == {"number": 10}
    assert len(live.recent_events()) == MOST_EVENTS


@pytest.mark.asyncio
async def test_a_reader_goes_on_behind_the_last_event_that_it_has_seen() -> None:
    live = network()
    for number in range(5):
        live.tell("audit", {"number": number})
    with live.reader(after=3) as reader:
        numbers = [event.content["number"] for _ in range(2) if (event := await reader.next(0)) is not None]
        assert numbers == [3, 4]
        assert await reader.next(0) is None
        asyncio.get_running_loop().call_soon(live.tell, "audit", {"number": 5})
        event = await reader.next(60)
        assert event is not None
        assert event.number == 6
