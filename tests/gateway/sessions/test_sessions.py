"""Sessions over all gateways: claims, records, takeover, expiry (MQTT 5 §3.1.4, MQTT 5 §4.1)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from hbroker._native import NativeError
from hbroker.gateway.native_api import (
    ClosedEvent,
    InFlight,
    SessionOverflowEvent,
    SessionState,
    SubscribeOptions,
    WillMessage,
)
from hbroker.gateway.network_clients import network_session
from hbroker.gateway.records.record_authentication import CLAIMS, sign
from hbroker.gateway.records.session_records import Record, SessionSubscription
from hbroker.gateway.records.wills import PendingWill
from hbroker.sim.network import Faults
from tests.gateway.networks import SECOND, Client, FakeGateway, two_gateways
from tests.network.networks import Tree

KEPT: Final[dict[str, Any]] = {"clean_start": False, "session_expiry_s": 100}


def records(gateway: FakeGateway) -> int:
    return gateway.control.counters()["records"]


def test_a_session_goes_on_at_the_other_gateway() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    assert not client.is_present
    client.subscribe("home/#", identifier=7)
    client.subscribe("home/lamp", qos=0)
    client.disconnect()
    tree.world.run(SECOND)
    two.publish("home/oven", b"1")
    tree.world.run(SECOND)
    again = two.connect("a", **KEPT)
    assert again.is_present
    tree.world.run_until(lambda: again.taken == [("home/oven", b"1")])
    assert {(n.filter, n.identifier) for n in two.native_api.listeners.values()} == {
        ("home/#", 7),
        ("home/lamp", 0),
    }
    assert not one.native_api.listeners


@pytest.mark.parametrize(
    "subscriptions",
    [
        (("home/x", 0), ("$share/g/home/x", 0)),
        (("home/x", 0), ("home/y", 1), ("$share/g/home/x", 0)),
        (("$share/g/home/x", 0), ("home/x", 0)),
        (("home/x", 0), ("home/y", 0)),
    ],
)
def test_a_session_is_resumed_as_soon_as_its_subscriptions_are_there(
    subscriptions: tuple[tuple[str, int], ...],
) -> None:
    """Whatever moves from the shared member to the session's own meanwhile."""
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    for filter, qos in subscriptions:
        assert client.subscribe(filter, qos=qos) == [qos]
    for gateway in (one, two):
        client.disconnect()
        tree.world.run(SECOND)
        began = tree.world.now
        client = gateway.connect("a", **KEPT)
        assert client.is_present
        assert tree.world.now - began < SECOND, "it did not wait for anything that was to come no more"


def test_a_session_is_taken_over_with_its_connection() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    again = two.connect("a", **KEPT)
    assert client.closed == 0x8E
    assert again.is_present
    one.publish("home/oven", b"1")
    tree.world.run_until(lambda: again.taken == [("home/oven", b"1")])


@pytest.mark.parametrize("busy_us", [0, 20_000, 300_000])
def test_who_comes_back_at_once_waits_no_longer_than_the_owner_is_busy(busy_us: int) -> None:
    """The owner's engine acknowledges that the session's member leaves, long before its control obeys."""
    tree, one, two = two_gateways()
    owner = tree.nodes["home"]
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    for gateway in (one, two, one):
        obey = owner.settle
        owner.settle = lambda: None  # type: ignore[method-assign]
        client.disconnect()
        tree.world.run(busy_us)
        owner.settle = obey  # type: ignore[method-assign]
        tree.world.settle(owner)
        before = tree.world.now
        client = gateway.connect("a", **KEPT)
        assert tree.world.now - before <= busy_us + 50_000


def test_nobody_has_a_client_twice_when_connack_leaves() -> None:
    """The one before is told before the next is accepted, at whatever gateways."""
    _, *gateways = two_gateways()
    former: Client | None = None
    for turn in range(12):
        client = gateways[turn % 3 % 2].connect(
            "a", clean_start=turn % 2 == 0, session_expiry_s=turn % 3 * 50
        )
        if former is not None:
            assert former.closed == 0x8E
        former = client


def test_of_two_claims_at_once_one_wins() -> None:
    for seed in range(8):
        tree, one, two = two_gateways(seed)
        clients = [one.begin("a"), two.begin("a")]
        tree.world.run(5 * SECOND)
        living = [c for c in clients if c.is_accepted and c.closed is None]
        assert len(living) == 1
        (other,) = [c for c in clients if c is not living[0]]
        assert other.refused == 0x88 or other.closed == 0x8E


@pytest.mark.parametrize("ahead", [-3600 * SECOND, 3600 * SECOND])
def test_clocks_that_differ_do_not_decide(ahead: int) -> None:
    tree = Tree.grow(1, ("home",))
    one = FakeGateway(tree, "one").ready()
    two = FakeGateway(tree, "two", clock_ahead_us=ahead).ready()
    first = one.connect("a")
    second = two.connect("a")
    assert first.closed == 0x8E
    third = one.connect("a")
    assert (second.closed, third.closed) == (0x8E, None)


def test_a_stamp_from_the_far_future_is_not_followed() -> None:
    tree, one, _ = two_gateways()
    forged = {"gateway": "f", "run": 1, "since": 1 << 62, "claims": [["x", 0, False]]}
    outsider = tree.client()
    outsider.publish(CLAIMS + "f", sign(b"", "", forged), 1)
    tree.world.run(SECOND)
    client = one.connect("x")
    assert one.control._context.clock.stamp(tree.world.now).time_us < 1 << 61
    assert client.closed is None


def test_claims_need_the_networks_key() -> None:
    tree = Tree.grow(1, ("home",))
    one = FakeGateway(tree, "one", key=b"k" * 32).ready()
    two = FakeGateway(tree, "two", key=b"k" * 32).ready()
    client = one.connect("a")
    forged = {"gateway": "f", "run": 1, "since": tree.world.now + SECOND, "claims": [["a", 0, True]]}
    topic = CLAIMS + "f"
    tree.client().publish(topic, sign(b"", topic, forged), 1)
    tree.client().publish(topic, sign(b"other key", topic, forged), 1)
    tree.client().publish(topic, sign(b"k" * 32, topic + "x", forged), 1)
    tree.world.run(2 * SECOND)
    assert client.closed is None
    assert one.control.counters()["claims_dropped"] == 3
    two.connect("a")
    assert client.closed == 0x8E


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"{}", b'{"client": 1}', b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("kind", ["claims", "sessions", "gateways", "requests"])
def test_what_makes_no_sense_is_dropped(kind: str, payload: bytes) -> None:
    tree = Tree.grow(1, ("home",))
    one = FakeGateway(tree, "one").ready()
    tree.client().publish(f"$gateway/{kind}/x", payload, 1)
    tree.world.run(SECOND)
    assert one.connect("a").is_accepted


def test_a_clean_start_ends_what_was_left_at_the_owners() -> None:
    tree, one, two = two_gateways(subtrees=("home", "office"))
    client = one.connect("a", **KEPT)
    client.subscribe("home/#", "office/#")
    client.disconnect()
    tree.world.run(SECOND)
    one.publish("home/oven", b"1")
    tree.world.run(SECOND)
    fresh = two.connect("a", clean_start=True)
    assert not fresh.is_present
    tree.world.run(2 * SECOND)
    assert tree.nodes["home"].engine.matching("home/oven") == 0
    assert tree.nodes["office"].engine.matching("office/x") == 0
    assert records(one) == records(two) == 0
    fresh.drop()
    assert not two.connect("a", **KEPT).is_present


def test_a_clean_start_that_is_kept_begins_anew() -> None:
    tree, one, _ = two_gateways()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    client.disconnect()
    tree.world.run(SECOND)
    one.publish("home/oven", b"old")
    fresh = one.connect("a", clean_start=True, session_expiry_s=100)
    assert fresh.subscribe("home/lamp") == [1]
    one.publish("home/lamp", b"new")
    one.publish("home/oven", b"new")
    tree.world.run(2 * SECOND)
    assert fresh.taken == [("home/lamp", b"new")]


def test_before_version_5_the_clean_flag_decides() -> None:
    tree, one, two = two_gateways()
    one.connect("a", version=4, clean_start=False).disconnect()
    tree.world.run(SECOND)
    assert two.connect("a", version=4, clean_start=False).is_present
    assert not one.connect("a", version=4, clean_start=True).is_present
    assert not two.connect("a", version=4, clean_start=False).is_present


def test_a_session_without_expiry_ends_with_its_connection() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a")
    client.subscribe("home/#", qos=2)
    client.drop()
    tree.world.run(SECOND)
    assert tree.nodes["home"].engine.matching("home/x") == 0
    assert not two.connect("a", clean_start=False).is_present


def test_a_session_ends_when_it_has_been_away_for_its_expiry() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    client.drop()
    tree.world.run(99 * SECOND)
    assert records(one) == records(two) == 1
    tree.world.run(3 * SECOND)
    assert records(one) == records(two) == 0
    assert tree.nodes["home"].engine.matching("home/x") == 0
    assert not two.connect("a", **KEPT).is_present


def test_a_session_that_is_connected_elsewhere_does_not_expire() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    client.drop()
    again = two.connect("a", **KEPT)
    tree.world.run(300 * SECOND)
    assert records(one) == 1
    assert again.closed is None
    one.publish("home/x", b"1")
    tree.world.run_until(lambda: again.taken == [("home/x", b"1")])


@pytest.mark.parametrize("gives_up", [False, True])
@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_a_session_of_a_dead_gateway_lives_on_though_its_client_gives_up_before_connack(
    name: str, gives_up: bool
) -> None:
    """By the name it is the second or the third gateway that sees to the session."""
    tree, one, two = two_gateways()
    three = FakeGateway(tree, "three").ready()
    session_options = {"clean_start": False, "session_expiry_s": 3_600}
    client = one.connect(name, **session_options)
    client.subscribe("home/#")
    tree.world.run(SECOND)
    one.kill()
    tree.world.run(30 * SECOND)
    if gives_up:
        two.connect_and_close_before_connack(name, three, **session_options)
    tree.world.run(5 * SECOND)
    two.publish("home/x", b"kept")
    tree.world.run(100 * SECOND)
    again = two.connect(name, **session_options)
    tree.world.run(5 * SECOND)
    assert three.control.counters().get("sessions_expired", 0) == 0
    assert (again.is_present, again.taken) == (True, [("home/x", b"kept")])


@pytest.mark.parametrize("name", ["b", "c", "d"])
def test_a_session_whose_client_gave_up_before_connack_ends_in_time(name: str) -> None:
    """Its client has 100 s from when its gateway is known to be gone, and gives up shortly before that is
    over. By these names it is the third gateway that sees to the session."""
    tree, one, two = two_gateways()
    three = FakeGateway(tree, "three").ready()
    one.connect(name, **KEPT).subscribe("home/#")
    tree.world.run(SECOND)
    one.kill()
    tree.world.run(80 * SECOND)
    two.connect_and_close_before_connack(name, three, **KEPT)
    tree.world.run(50 * SECOND)
    assert records(three) == 1, "somebody connects its client, as far as is known"
    tree.world.run(30 * SECOND)
    assert (records(two), records(three)) == (0, 0)


@pytest.mark.parametrize(("changed", "lives"), [(0, 0), (30, 30), (500, 500), (None, 100)])
def test_disconnect_changes_the_expiry(changed: int | None, lives: int) -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    client.disconnect(session_expiry_s=changed)
    tree.world.run(SECOND)
    owner = tree.nodes["home"].engine
    tree.world.run(max(0, lives - 5) * SECOND)
    assert records(two) == owner.matching("home/x") == (1 if lives else 0)
    tree.world.run(10 * SECOND)
    assert records(two) == owner.matching("home/x") == 0


def test_no_expiry_cannot_become_one_at_the_end() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", session_expiry_s=0)
    client.subscribe("home/#")
    client.disconnect(session_expiry_s=100)
    tree.world.run(SECOND)
    assert records(two) == 0


def test_a_session_may_come_back_for_one_connection_only() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    client.drop()
    tree.world.run(SECOND)
    one.publish("home/x", b"1")
    tree.world.run(SECOND)
    again = two.connect("a", clean_start=False, session_expiry_s=0)
    assert again.is_present
    tree.world.run_until(lambda: again.taken == [("home/x", b"1")])
    again.drop()
    tree.world.run(2 * SECOND)
    assert tree.nodes["home"].engine.matching("home/x") == 0
    assert records(one) == records(two) == 0


def test_what_is_in_flight_goes_along() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    client.session.state = SessionState(received=(9, 11), block=7)
    client.session.connection = None  # it does not answer any more
    one.publish("home/x", b"1")
    one.publish("home/x", b"2")
    tree.world.run(SECOND // 2)
    assert len(client.session.waiting) == 2
    client.drop()
    tree.world.run(SECOND)
    again = two.connect("a", **KEPT)
    state = again.session.state
    assert (state.received, state.block) == ((9, 11), 7)
    assert [m.packet_id for m in state.in_flight] == [1, 2]
    tree.world.run_until(lambda: again.taken == [("home/x", b"1"), ("home/x", b"2")])


def test_a_session_that_overflows_ends_by_its_policy() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    other = one.connect("b", **KEPT)
    one.tell(SessionOverflowEvent(one.native_api.accepted[client.number].session))
    assert (client.closed, other.closed) == (0x97, None)
    tree.world.run(SECOND)
    assert tree.nodes["home"].engine.matching("home/x") == 0
    assert not two.connect("a", **KEPT).is_present
    one.tell(SessionOverflowEvent(12345))  # one that is gone


def test_the_state_of_a_session_survives_its_record() -> None:
    will = WillMessage("t", b"\x00\xff", 2, True, 0, 9, "text", 1, "r", b"\xfe", (("a", "b"),))
    state = SessionState((InFlight(1, 1 << 63, 2, 2, True),), (3, 4), 5)
    options = SubscribeOptions(2, True, True, 2)
    record = Record(
        "c",
        "g",
        1 << 63,
        10,
        20,
        True,
        (SessionSubscription("a/+", options, 6),),
        state,
        PendingWill(will, 7),
    )
    assert Record.parse(record.body()) == record
    assert Record.parse({**record.body(), "subscriptions": [[1]]}) is None


class TestDeaths:
    """A gateway or an owner that is gone."""

    def test_clients_of_a_dead_gateway_resume_at_another(self) -> None:
        tree, one, two = two_gateways()
        client = one.connect("a", **KEPT)
        client.subscribe("home/#")
        two.publish("home/x", b"1")
        tree.world.run(SECOND)
        assert client.taken == [("home/x", b"1")]
        one.kill()
        two.publish("home/x", b"2")
        again = two.connect("a", **KEPT)
        assert again.is_present
        assert again.session.state == SessionState(block=1), "nothing is known of what was in flight"
        tree.world.run_until(lambda: ("home/x", b"2") in again.taken)

    def test_a_claim_does_not_wait_for_the_dead_for_long(self) -> None:
        tree, one, two = two_gateways()
        one.connect("a", **KEPT)
        one.kill()
        began = tree.world.now
        two.connect("a", **KEPT)
        assert tree.world.now - began <= 7 * SECOND

    def test_the_first_of_those_left_ends_the_sessions_of_the_dead(self) -> None:
        tree, one, two = two_gateways()
        three = FakeGateway(tree, "three").ready()
        one.connect("away", **KEPT).drop()
        one.connect("connected", **KEPT).subscribe("home/#")
        tree.world.run(SECOND)
        one.kill()
        tree.world.run(90 * SECOND)
        assert records(two) == records(three) == 2
        tree.world.run(150 * SECOND)
        assert records(two) == records(three) == 0
        expired = [g.control.counters().get("sessions_expired", 0) for g in (two, three)]
        assert sum(expired) == 2

    def test_a_gateway_that_begins_anew_knows_the_sessions(self) -> None:
        tree, one, two = two_gateways()
        client = one.connect("a", **KEPT)
        client.subscribe("home/#")
        one.kill()
        two.kill()
        tree.world.run(5 * SECOND)
        again = FakeGateway(tree, "one").ready().connect("a", **KEPT)
        assert again.is_present
        assert again.gateway.native_api.listeners

    def test_clients_connect_while_the_root_is_away(self) -> None:
        tree, one, two = two_gateways()
        client = one.connect("a", **KEPT)
        client.subscribe("home/#")
        tree.root.kill()
        began = tree.world.now
        again = one.connect("a", **KEPT)
        other = two.connect("b")
        assert again.is_present
        assert tree.world.now - began < 10 * SECOND
        one.publish("home/x", b"1")
        tree.root.restart(remembers=True)
        tree.world.run_until(lambda: again.taken == [("home/x", b"1")])
        assert other.closed is None

    def test_two_that_have_one_client_while_the_root_is_away_settle_it(self) -> None:
        tree, one, two = two_gateways()
        tree.root.kill()
        first, second = one.connect("a"), two.connect("a")
        assert [first.closed, second.closed] == [None, None]
        tree.root.restart(remembers=True)
        tree.world.run(60 * SECOND)
        assert [first.closed, second.closed] == [0x8E, None]

    def test_records_are_written_again_when_their_owner_lost_them(self) -> None:
        tree, one, two = two_gateways()
        one.connect("a", **KEPT).drop()
        two.connect("b", **KEPT)
        two.connect("c", **KEPT).subscribe("home/#")
        tree.world.run(SECOND)
        tree.root.kill()
        tree.root.restart(remembers=True)
        tree.world.run(60 * SECOND)
        three = FakeGateway(tree, "three").ready()
        assert records(three) == records(one) == 2
        assert sorted(three.control._context.gateways.names) == ["one", "three", "two"]

    def test_a_client_that_gives_up_before_connack_leaves_its_session_alone(self) -> None:
        tree, one, two = two_gateways()
        client = one.connect("a", **KEPT)
        client.subscribe("home/#")
        client.drop()
        tree.world.run(SECOND)
        two.begin("a", **KEPT).drop()
        tree.world.run(SECOND)
        assert records(one) == 1
        assert one.connect("a", **KEPT).is_present

    def test_a_session_whose_next_client_gave_up_still_expires(self) -> None:
        tree, one, two = two_gateways()
        one.connect("a", **KEPT).drop()
        tree.world.run(SECOND)
        two.begin("a", **KEPT).drop()
        tree.world.run(200 * SECOND)
        assert records(one) == records(two) == 0


def test_takeover_over_a_bad_path_loses_and_doubles_no_session() -> None:
    for seed in range(3):
        tree, *gateways = two_gateways(seed)
        tree.world.faults = Faults(loss=0.1, duplication=0.05)
        client = gateways[0].connect("a", **KEPT)
        assert client.subscribe("home/#") == [1]
        sent = []
        for turn in range(6):
            former, client = client, gateways[(turn + 1) % 2].connect("a", **KEPT)
            assert former.closed == 0x8E
            assert client.is_present
            payload = b"%d" % turn
            gateways[0].publish("home/x", payload)
            sent.append(payload)
            tree.world.run_until(lambda: ("home/x", payload) in client.taken)  # noqa: B023


def test_a_member_is_known_by_client_and_key_alone() -> None:
    assert network_session("a", b"k") == network_session("a", b"k")
    assert len({network_session(c, k) for c in ("a", "b") for k in (b"", b"k")}) == 4


def test_a_session_that_the_core_lost_is_kept_all_the_same() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")

    def lost(session: int, **_: bool) -> SessionState:
        raise NativeError("it is not here")

    one.native_api.export_session = lost  # type: ignore[method-assign]
    one.tell(ClosedEvent(client.number, "closed"))
    tree.world.run(SECOND)
    two.publish("home/x", b"1")
    again = two.connect("a", **KEPT)
    assert again.is_present
    tree.world.run_until(lambda: again.taken == [("home/x", b"1")])
    assert one.control.counters()["sessions_lost"] == 1
