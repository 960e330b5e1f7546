"""The audit: bounded, never in the way, and of each node what it says itself (§5.12)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.admin.audit import A_SECOND, BURST, MOST_BYTES, MOST_WAITING, RETRY, Audit, audit_topic
from hbroker.protocol.packets import pack
from hbroker.protocol.timers import SECOND
from tests.protocol.fakes import FakeCore
from tests.protocol.world import World

VALUES = st.none() | st.booleans() | st.integers(-(1 << 64), 1 << 64) | st.text(max_size=3_000)


class Sent:
    """What an audit sent, and whether it can send."""

    def __init__(self) -> None:
        self.is_open = True
        self.records: list[dict[str, Any]] = []
        self.audit = Audit(self._send)

    def _send(self, now: int, event: str, record: bytes) -> bool:
        if self.is_open:
            assert len(record) <= MOST_BYTES
            self.records.append({"event": event, **json.loads(record)})
        return self.is_open


def test_an_event_is_sent_at_once_and_otherwise_when_that_is_possible() -> None:
    sent = Sent()
    sent.audit.add(0, "first", {"n": 1})
    assert sent.records == [{"event": "first", "n": 1}]
    assert sent.audit.poll_timeout() is None
    sent.is_open = False
    sent.audit.add(1, "second", {"n": 2})
    sent.audit.add(2, "third", {"n": 3})
    due = sent.audit.poll_timeout()
    assert due == 1 + RETRY
    sent.audit.handle_timeout(due)
    sent.is_open = True
    sent.audit.handle_timeout(due + RETRY)
    assert [record["n"] for record in sent.records] == [1, 2, 3], "in order"
    assert sent.audit.poll_timeout() is None


def test_what_does_not_fit_is_dropped_and_counted_in_the_next_record() -> None:
    sent = Sent()
    sent.is_open = False
    now = 0
    for n in range(MOST_WAITING + 7):
        now += SECOND // A_SECOND
        sent.audit.add(now, "e", {"n": n})
    sent.is_open = True
    sent.audit.handle_timeout(now + RETRY)
    assert [record["n"] for record in sent.records] == list(range(MOST_WAITING)), "the newest are dropped"
    assert sent.records[0]["dropped"] == 7
    sent.audit.add(now + SECOND, "e", {"n": -1})
    assert "dropped" not in sent.records[-1]
    sent.audit.count_dropped()
    sent.audit.add(now + SECOND, "e", {"n": -2})
    assert sent.records[-1]["dropped"] == 1


def test_a_flood_is_sent_at_a_bounded_rate() -> None:
    sent = Sent()
    for _ in range(3):
        for n in range(10 * BURST):
            sent.audit.add(0, "e", {"n": n})
    assert len(sent.records) == BURST
    sent.audit.add(2 * SECOND, "e", {})
    assert sent.records[-1]["dropped"] == 30 * BURST - BURST
    for _ in range(1_000):
        sent.audit.add(2 * SECOND, "e", {})
    assert len(sent.records) == BURST + 2 * A_SECOND


@given(st.dictionaries(st.text("abcdef_", min_size=1, max_size=12), VALUES, max_size=9))
def test_every_record_is_json_and_small_enough(fields: dict[str, object]) -> None:
    sent = Sent()
    sent.audit.add(0, "e", fields)
    (record,) = sent.records
    assert record.keys() == {"event", *fields}
    assert all(record[key] == value for key, value in fields.items() if len(str(value)) < 20)


@given(st.text())
def test_a_topic_has_three_levels_below_sys_and_no_wildcard(event: str) -> None:
    topic = audit_topic("kitchen", event)
    assert topic is None or topic == f"$SYS/audit/kitchen/{event}"
    assert topic is None or not set(event) & set("/+#$\0")


def published(world: World, name: str = "root") -> list[tuple[str, dict[str, Any]]]:
    core = world.nodes[name].core
    assert isinstance(core, FakeCore)
    found = [each for each in core.published if each[0].startswith("$SYS/audit/")]
    assert all(each[2:] == (1, False) for each in found), "QoS 1, not retained"
    return [(topic, json.loads(payload)) for topic, payload, _, _ in found]


@pytest.mark.parametrize("key", [b"", b"a secret of enough bytes"])
def test_the_root_publishes_the_events_of_nodes_under_their_names(key: bytes) -> None:
    world = World()
    world.start_root(join_key=key)
    kitchen = world.start_node("kitchen", "home/kitchen", join_key=key).node
    kitchen.audit(world.network.now, "early", {"n": 1})
    assert published(world) == [], "it has not joined"
    world.advance(2)
    kitchen.audit(world.network.now, "late", {"n": 2})
    world.nodes["root"].node.audit(world.network.now, "own", {"n": 3})
    world.advance(0.5)
    assert sorted(published(world)) == [
        ("$SYS/audit/kitchen/early", {"n": 1}),
        ("$SYS/audit/kitchen/late", {"n": 2}),
        ("$SYS/audit/root/own", {"n": 3}),
    ]
    assert published(world, "kitchen") == []


def test_records_wait_for_a_root_that_is_down() -> None:
    world = World()
    world.start_root()
    kitchen = world.start_node("kitchen", "home/kitchen").node
    world.advance(2)
    world.kill("root")
    while kitchen.claims.root_link is not None:
        world.advance(1)
    kitchen.audit(world.network.now, "meanwhile", {"n": 1})
    world.advance(2)
    world.restart("root")
    world.advance(10)
    assert published(world) == [("$SYS/audit/kitchen/meanwhile", {"n": 1})]


def test_nobody_publishes_for_a_node_but_the_holder_of_its_name() -> None:
    world = World()
    root = world.start_root()
    kitchen = world.start_node("kitchen", "home/kitchen")
    attic = world.start_node("attic", "home/kitchen/attic")
    world.advance(2)
    record = b'{"node": "root"}'
    link = attic.node.claims.root_link
    assert link is not None
    for event, data in (
        ("Wrong", record),
        ("a/b", record),
        ("", record),
        ("x" * 41, record),
        ("e", bytes(901)),
    ):
        assert attic.core.send(link, pack(pb.Audit(event=event, record=data)))
    # Its parent is the kitchen, at which it does not hold its name.
    parent = attic.core.connect(kitchen.settings.listen)
    assert attic.core.send(parent, pack(pb.Audit(event="e", record=record)))
    stranger = world.network.attach(("10.0.3.9", 5_000), is_node=False)
    own = stranger.connect(root.settings.listen)
    stranger.send(own, pack(pb.Audit(event="e", record=record)))
    stranger.send_to(root.settings.listen, pack(pb.Audit(event="e", record=record)))
    world.advance(1)
    assert published(world) == published(world, "kitchen") == []
    drops = [world.nodes[name].node.status(world.network.now)["drops"] for name in ("root", "kitchen")]
    assert [each["unexpected_packet"] > 0 for each in drops] == [True, True]  # type: ignore[index]
    assert attic.core.send(link, pack(pb.Audit(event="e", record=record)))
    world.advance(1)
    assert published(world) == [("$SYS/audit/attic/e", {"node": "root"})], "under its own name"


def test_a_node_that_floods_the_root_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbroker.protocol.requester.MOST_FORWARDED", 20)
    world = World()
    world.start_root()
    kitchen = world.start_node("kitchen", "home/kitchen")
    world.advance(2)
    link = kitchen.node.claims.root_link
    assert link is not None
    for _ in range(50):
        assert kitchen.core.send(link, pack(pb.Audit(event="e", record=b"{}")))
    world.advance(0.1)
    status = world.nodes["root"].node.status(world.network.now)
    assert len(published(world)) < 50
    assert status["counters"]["audit_dropped"] == 50 - len(published(world))  # type: ignore[index]
    assert not [event for event in world.events("root") if "udit" in type(event).__name__], "no events of it"
