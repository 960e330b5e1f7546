"""Small parts of the gateway: stamps, load averages, the outbox, reason codes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker._proto import packet_pb2 as pb
from hbroker.gateway.admin_requests import Request
from hbroker.gateway.native_api import InFlight, PoolClientCore, SessionState, SubscribeOptions, WillMessage
from hbroker.gateway.outbox import Outbox, OutboxMessage
from hbroker.gateway.reason_codes import Code, suback_code
from hbroker.gateway.records import client_id_claims
from hbroker.gateway.records.client_id_claims import ClientIdClaim, Stamp, StampClock
from hbroker.gateway.records.gateways import GatewayRecord, GatewayRecords
from hbroker.gateway.records.record_authentication import sign, verify
from hbroker.gateway.records.session_records import SessionRecord, SessionSubscription
from hbroker.gateway.records.wills import PendingWill
from hbroker.gateway.subscriptions.sys_topics import LoadAverage


@given(st.lists(st.tuples(st.integers(0, 1_000), st.none() | st.integers(0, 1_000_000)), max_size=30))
def test_a_stamp_is_higher_than_all_earlier_ones(steps: list[tuple[int, int | None]]) -> None:
    clock, now, highest = StampClock(7, 100), 0, -1
    for pause, seen in steps:
        now += pause
        if seen is not None:
            clock.observe(now, Stamp(seen, 9))
            highest = max(highest, seen)
        stamp = clock.stamp(now)
        assert stamp.time_us > highest
        assert stamp.time_us >= now + 100
        highest = stamp.time_us


def test_load_averages_follow_the_rate() -> None:
    load = LoadAverage()
    for tick in range(1, 1_000):
        load.update(tick * 50, 10.0)
    assert all(rate == pytest.approx(300, rel=0.01) for rate in load.per_minute.values())
    for _ in range(12):
        load.update(999 * 50, 10.0)
    assert load.per_minute["1min"] < 60 < load.per_minute["5min"] < load.per_minute["15min"]


def test_exactly_one_of_several_gateways_is_responsible_for_a_hash() -> None:
    names = ["one", "two", "three"]
    views = []
    for index, name in enumerate(names):
        view = GatewayRecords(name, index)
        for other, run in zip(names, range(3), strict=True):
            if other != name:
                view.update(GatewayRecord(other, run, stamp=Stamp(1, run)), b"")
        views.append(view)
    firsts = [sum(view.is_first_for(f"hash-{n}") for view in views) for n in range(50)]
    assert set(firsts) == {1}
    assert len({next(v for v in views if v.is_first_for(f"hash-{n}")) for n in range(50)}) == 3


@given(st.binary(max_size=8), st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)))
def test_a_signed_body_is_accepted_only_with_its_key_and_topic(key: bytes, body: dict[str, Any]) -> None:
    payload = sign(key, "t", body)
    assert verify(key, "t", payload) == body
    if key:
        assert verify(key, "u", payload) is None
        assert verify(key + b"x", "t", payload) is None
        assert verify(key, "t", payload[:-1]) is None


@given(st.binary(max_size=60), st.binary(max_size=4))
def test_random_bytes_are_refused_without_an_exception(payload: bytes, key: bytes) -> None:
    assert verify(key, "t", payload) is None or isinstance(verify(key, "t", payload), dict)


@pytest.mark.parametrize(
    "text", [b"Infinity", b"-Infinity", b"NaN", b"1e999", b"1.5", rb'"\ud800"', rb'"\uD83D x"']
)
def test_numbers_that_are_not_integers_and_invalid_text_are_refused(text: bytes) -> None:
    """Only integers and valid text are accepted. Half of the other values cannot be computed with, or sent
    on."""
    assert verify(b"", "t", b'{"a": %b}' % text) is None
    assert verify(b"", "t", b"{%b: 1}" % text) is None


def test_valid_text_is_read_back() -> None:
    body = {"name": "\U0001f600 \u00e9 \\ud800"}
    assert verify(b"", "t", sign(b"", "t", body)) == body


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)
_BODIES: dict[Callable[[dict[str, Any]], object], dict[str, Any]] = {
    SessionRecord.parse: SessionRecord(
        "c",
        "g",
        1,
        10,
        20,
        True,
        (SessionSubscription("a/+", SubscribeOptions(1), 6),),
        SessionState((InFlight(1, 2, 3, 2, True),), (3,), 5),
        PendingWill(WillMessage("t", b"x", 2, True, 0, 9, "text", 1, "r", b"c", (("a", "b"),)), 7),
    ).body(),
    GatewayRecord.parse: GatewayRecord("g", 1, True, ("mqtt://x",), 5, Stamp(6, 1)).body(),
    Request.parse: Request("kick", "r" * 16, 5, "c").body(),
    client_id_claims.parse: client_id_claims.body_of("g", [ClientIdClaim("c", Stamp(1, 2), True)]),
}


@settings(max_examples=500)
@given(st.sampled_from(list(_BODIES)), st.data())
def test_a_body_with_one_changed_value_is_refused_or_within_its_bounds(
    parse: Callable[[dict[str, Any]], object], data: st.DataObject
) -> None:
    """One value of the body, at any depth, is replaced."""
    body = copy.deepcopy(_BODIES[parse])
    place: Any = body
    key: Any = data.draw(st.sampled_from(sorted(body)))
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[key] = data.draw(st.sampled_from([-1, 3, 1 << 32, 1 << 70, "", None, [], {}]) | _JSON)
    read = parse(body)
    if isinstance(read, SessionRecord):
        assert 0 <= read.expiry_s < 1 << 32
        assert all(s.options.qos in (0, 1, 2) and 0 <= s.identifier < 1 << 28 for s in read.subscriptions)
        assert read.will is None or read.will.message.qos in (0, 1, 2)
        assert read.will is None or read.will.message.payload_format in (None, 0, 1)
        assert read.will is None or (read.will.message.expiry_s or 0) in range(1 << 32)


@pytest.mark.parametrize("code", list(Code))
def test_suback_before_mqtt_5_has_only_one_failure_code(code: Code) -> None:
    assert suback_code(5, code) == code
    assert suback_code(4, code) == (0x80 if code >= 0x80 else code)


class Core:
    """A core that accepts a limited number of messages and records them."""

    def __init__(self) -> None:
        self.room = 100
        self.sent: list[tuple[str, bytes]] = []

    def publish(self, topic: str, payload: bytes, *args: object, **fields: object) -> int | None:
        if len(self.sent) >= self.room:
            return None
        self.sent.append((topic, payload))
        return len(self.sent)


class TestOutbox:
    """Messages in the outbox until they are distributed."""

    def outbox(self) -> tuple[Core, Outbox]:
        core = Core()
        return core, Outbox(cast(PoolClientCore, core), Random(1), 0)

    def test_a_message_is_repeated_until_it_is_distributed(self) -> None:
        core, outbox = self.outbox()
        told: list[bool] = []
        outbox.enqueue(0, OutboxMessage(WillMessage("t", b"1", qos=1), lambda now, good: told.append(good)))
        outbox.handle_published(0, 1, pb.REASON_OWNER_UNREACHABLE)
        assert not told
        due = outbox.poll_timeout()
        assert due is not None
        outbox.handle_timeout(due)
        assert core.sent == [("t", b"1")] * 2
        outbox.handle_published(due, 2, pb.REASON_NO_MATCHING_SUBSCRIBERS)
        assert told == [True]
        assert (len(outbox), outbox.poll_timeout()) == (0, None)

    def test_of_messages_that_replace_each_other_only_the_newest_is_repeated(self) -> None:
        core, outbox = self.outbox()
        told: list[tuple[bytes, bool]] = []
        for payload in (b"1", b"2"):
            message = WillMessage("t", payload, qos=1)
            outbox.enqueue(
                0,
                OutboxMessage(message, lambda now, good, p=payload: told.append((p, good)), replaces=True),  # type: ignore[misc]
            )
        outbox.handle_published(0, 1, pb.REASON_OWNER_UNREACHABLE)
        assert told == [(b"1", False)]
        outbox.handle_published(0, 2, pb.REASON_OWNER_UNREACHABLE)
        outbox.handle_timeout(60_000_000)
        outbox.handle_published(60_000_000, 3, pb.REASON_SUCCESS)
        assert core.sent == [("t", b"1"), ("t", b"2"), ("t", b"2")]
        assert told[1:] == [(b"2", True)]

    def test_messages_wait_for_room_in_order(self) -> None:
        core, outbox = self.outbox()
        core.room = 0
        for number in range(5):
            outbox.enqueue(0, OutboxMessage(WillMessage("t", b"%d" % number, qos=number % 2)))
        assert len(outbox) == 5
        core.room = 100
        outbox.handle_timeout(1_000_000)
        assert [payload for _, payload in core.sent] == [b"0", b"1", b"2", b"3", b"4"]
        assert len(outbox) == 2, "QoS 0 is done with"

    def test_a_waiting_message_is_replaced_by_the_next_one_of_its_topic(self) -> None:
        core, outbox = self.outbox()
        core.room = 0
        told: list[tuple[int, bool]] = []
        for number in range(5_000):
            message = WillMessage("t", b"%d" % number, qos=1)
            done = partial(lambda number, _now, good: told.append((number, good)), number)
            outbox.enqueue(0, OutboxMessage(message, done if number % 1_000 == 0 else None, replaces=True))
            outbox.enqueue(0, OutboxMessage(WillMessage("u", b"%d" % number, qos=1), replaces=True))
        assert len(outbox) == 2
        assert not told, "nobody knows the newest yet"
        core.room = 100
        outbox.handle_timeout(1_000_000)
        assert core.sent == [("t", b"4999"), ("u", b"4999")]
        outbox.handle_published(1_000_000, 1, pb.REASON_SUCCESS)
        assert told == [(number, True) for number in range(0, 5_000, 1_000)]

    @pytest.mark.parametrize("reason", [pb.REASON_NOT_AUTHORIZED, pb.REASON_MESSAGE_EXPIRED])
    def test_a_refused_or_expired_message_is_not_repeated(self, reason: int) -> None:
        _, outbox = self.outbox()
        told: list[bool] = []
        outbox.enqueue(0, OutboxMessage(WillMessage("t", b"1", qos=1), lambda now, good: told.append(good)))
        outbox.handle_published(0, 1, reason)
        assert told == [False]

    def test_a_message_is_not_repeated_after_its_deadline(self) -> None:
        _, outbox = self.outbox()
        told: list[bool] = []
        entry = OutboxMessage(WillMessage("t", b"1", qos=1), lambda now, good: told.append(good), until=10)
        outbox.enqueue(0, entry)
        outbox.handle_published(11, 1, pb.REASON_OWNER_UNREACHABLE)
        assert told == [False]
