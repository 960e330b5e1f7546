"""The small concepts: stamps, load averages, the outbox, reason codes."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._proto import packet_pb2 as pb
from hbroker.gateway.border import Member, WillMessage
from hbroker.gateway.claims import Clock, Stamp
from hbroker.gateway.gateways import Gateways, Presence
from hbroker.gateway.load import LoadAverage
from hbroker.gateway.outbox import Letter, Outbox
from hbroker.gateway.reasons import Code, suback_code
from hbroker.gateway.sealing import seal, unseal


@given(st.lists(st.tuples(st.integers(0, 1_000), st.none() | st.integers(0, 1_000_000)), max_size=30))
def test_a_stamp_is_higher_than_all_before(steps: list[tuple[int, int | None]]) -> None:
    clock, now, highest = Clock(7, 100), 0, -1
    for pause, seen in steps:
        now += pause
        if seen is not None:
            clock.saw(now, Stamp(seen, 9))
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


def test_of_several_gateways_exactly_one_is_first() -> None:
    names = ["one", "two", "three"]
    views = []
    for index, name in enumerate(names):
        view = Gateways(name, index)
        for other, run in zip(names, range(3), strict=True):
            view.take(Presence(other, run))
        views.append(view)
    firsts = [sum(view.is_first_for(f"hash-{n}") for view in views) for n in range(50)]
    assert set(firsts) == {1}
    assert len({next(v for v in views if v.is_first_for(f"hash-{n}")) for n in range(50)}) == 3


@given(st.binary(max_size=8), st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)))
def test_what_is_sealed_is_read_under_the_same_key_and_topic_alone(key: bytes, body: dict[str, Any]) -> None:
    payload = seal(key, "t", body)
    assert unseal(key, "t", payload) == body
    if key:
        assert unseal(key, "u", payload) is None
        assert unseal(key + b"x", "t", payload) is None
        assert unseal(key, "t", payload[:-1]) is None


@given(st.binary(max_size=60), st.binary(max_size=4))
def test_any_bytes_are_read_or_not(payload: bytes, key: bytes) -> None:
    assert unseal(key, "t", payload) is None or isinstance(unseal(key, "t", payload), dict)


@pytest.mark.parametrize("code", list(Code))
def test_old_versions_know_one_failure_in_suback(code: Code) -> None:
    assert suback_code(5, code) == code
    assert suback_code(4, code) == (0x80 if code >= 0x80 else code)


class Core:
    """Takes so many messages, and remembers them."""

    def __init__(self) -> None:
        self.room = 100
        self.sent: list[tuple[str, bytes]] = []

    def publish(self, topic: str, payload: bytes, *args: object, **fields: object) -> int | None:
        if len(self.sent) >= self.room:
            return None
        self.sent.append((topic, payload))
        return len(self.sent)


class TestOutbox:
    """Letters until they are distributed."""

    def outbox(self) -> tuple[Core, Outbox]:
        core = Core()
        return core, Outbox(cast(Member, core), Random(1), 0)

    def test_a_letter_is_repeated_until_it_is_distributed(self) -> None:
        core, outbox = self.outbox()
        told: list[bool] = []
        outbox.post(0, Letter(WillMessage("t", b"1", qos=1), lambda now, good: told.append(good)))
        outbox.handle_published(0, 1, pb.REASON_OWNER_UNREACHABLE)
        assert not told
        due = outbox.poll_timeout()
        assert due is not None
        outbox.handle_timeout(due)
        assert core.sent == [("t", b"1")] * 2
        outbox.handle_published(due, 2, pb.REASON_NO_MATCHING_SUBSCRIBERS)
        assert told == [True]
        assert (len(outbox), outbox.poll_timeout()) == (0, None)

    def test_of_those_that_replace_each_other_the_newest_alone_is_repeated(self) -> None:
        core, outbox = self.outbox()
        told: list[tuple[bytes, bool]] = []
        for payload in (b"1", b"2"):
            message = WillMessage("t", payload, qos=1)
            outbox.post(
                0,
                Letter(message, lambda now, good, p=payload: told.append((p, good)), replaces=True),  # type: ignore[misc]
            )
        outbox.handle_published(0, 1, pb.REASON_OWNER_UNREACHABLE)
        assert told == [(b"1", False)]
        outbox.handle_published(0, 2, pb.REASON_OWNER_UNREACHABLE)
        outbox.handle_timeout(60_000_000)
        outbox.handle_published(60_000_000, 3, pb.REASON_SUCCESS)
        assert core.sent == [("t", b"1"), ("t", b"2"), ("t", b"2")]
        assert told[1:] == [(b"2", True)]

    def test_letters_wait_for_room_in_order(self) -> None:
        core, outbox = self.outbox()
        core.room = 0
        for number in range(5):
            outbox.post(0, Letter(WillMessage("t", b"%d" % number, qos=number % 2)))
        assert len(outbox) == 5
        core.room = 100
        outbox.handle_timeout(1_000_000)
        assert [payload for _, payload in core.sent] == [b"0", b"1", b"2", b"3", b"4"]
        assert len(outbox) == 2, "QoS 0 is done with"

    @pytest.mark.parametrize("reason", [pb.REASON_NOT_AUTHORIZED, pb.REASON_MESSAGE_EXPIRED])
    def test_what_is_refused_for_good_is_not_repeated(self, reason: int) -> None:
        _, outbox = self.outbox()
        told: list[bool] = []
        outbox.post(0, Letter(WillMessage("t", b"1", qos=1), lambda now, good: told.append(good)))
        outbox.handle_published(0, 1, reason)
        assert told == [False]

    def test_what_is_late_is_not_repeated(self) -> None:
        _, outbox = self.outbox()
        told: list[bool] = []
        letter = Letter(WillMessage("t", b"1", qos=1), lambda now, good: told.append(good), until=10)
        outbox.post(0, letter)
        outbox.handle_published(11, 1, pb.REASON_OWNER_UNREACHABLE)
        assert told == [False]
