"""Sessions over all gateways: claims, records, takeover, expiry (MQTT 5 §3.1.4, MQTT 5 §4.1)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from hbroker._native import NativeError
from hbroker.gateway.native_api import (
    PACKET_ID_BLOCKS,
    ClosedEvent,
    InFlight,
    SessionState,
    SubscribeOptions,
    WillMessage,
    next_block,
)
from hbroker.gateway.network_clients import network_session
from hbroker.gateway.records.record_authentication import CLAIMS, sign
from hbroker.gateway.records.session_records import SessionRecord, SessionSubscription
from hbroker.gateway.records.wills import PendingWill
from hbroker.sim.network import Faults
from tests.gateway.networks import SECOND, Client, FakeGateway, two_gateways
from tests.network.networks import Tree

KEPT: Final[dict[str, Any]] = {"clean_start": False, "session_expiry_s": 100}


def records(gateway: FakeGateway) -> int:
    return gateway.control.counters()["records"]


def subscriber() -> tuple[Tree, FakeGateway, FakeGateway, Client]:
    """Two gateways, and a client of the first one whose session is kept, with a subscription."""
    tree, one, two = two_gateways()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    return tree, one, two, client


def test_a_session_is_resumed_at_another_gateway() -> None:
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
def test_a_session_is_resumed_as_soon_as_its_subscriptions_are_made(
    subscriptions: tuple[tuple[str, int], ...],
) -> None:
    """Also while a subscription moves from the shared pool client to the session's own."""
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


def test_a_takeover_takes_the_session_along() -> None:
    tree, one, two, client = subscriber()
    again = two.connect("a", **KEPT)
    assert client.closed == 0x8E
    assert again.is_present
    one.publish("home/oven", b"1")
    tree.world.run_until(lambda: again.taken == [("home/oven", b"1")])


@pytest.mark.parametrize("busy_us", [0, 20_000, 300_000])
def test_a_client_that_reconnects_at_once_waits_no_longer_than_the_owner_is_busy(busy_us: int) -> None:
    """The owner's engine acknowledges the LEAVE of the session's pool client long before the owner's
    control handles it."""
    tree, one, two = two_gateways()
    owner = tree.nodes["home"]
    client = one.connect("a", **KEPT)
    client.subscribe("home/#")
    for gateway in (one, two, one):
        obey = owner.process_events
        owner.process_events = lambda: None  # type: ignore[method-assign]
        client.disconnect()
        tree.world.run(busy_us)
        owner.process_events = obey  # type: ignore[method-assign]
        tree.world.drive(owner)
        before = tree.world.now
        client = gateway.connect("a", **KEPT)
        assert tree.world.now - before <= busy_us + 50_000


def test_a_client_has_only_one_connection_when_connack_is_sent() -> None:
    """The former connection is closed before the next one is accepted, at any gateways."""
    _, *gateways = two_gateways()
    former: Client | None = None
    for turn in range(12):
        client = gateways[turn % 3 % 2].connect(
            "a", clean_start=turn % 2 == 0, session_expiry_s=turn % 3 * 50
        )
        if former is not None:
            assert former.closed == 0x8E
        former = client


def test_one_of_two_simultaneous_claims_wins() -> None:
    for seed in range(8):
        tree, one, two = two_gateways(seed)
        clients = [one.begin("a"), two.begin("a")]
        tree.world.run(5 * SECOND)
        living = [c for c in clients if c.is_accepted and c.closed is None]
        assert len(living) == 1
        (other,) = [c for c in clients if c is not living[0]]
        assert other.refused == 0x88 or other.closed == 0x8E


@pytest.mark.parametrize("ahead", [-3600 * SECOND, 3600 * SECOND])
def test_different_clocks_do_not_decide_about_a_claim(ahead: int) -> None:
    tree = Tree.grow(1, ("home",))
    one = FakeGateway(tree, "one").ready()
    two = FakeGateway(tree, "two", clock_ahead_us=ahead).ready()
    first = one.connect("a")
    second = two.connect("a")
    assert first.closed == 0x8E
    third = one.connect("a")
    assert (second.closed, third.closed) == (0x8E, None)


def test_a_stamp_from_the_far_future_is_not_adopted() -> None:
    tree, one, _ = two_gateways()
    forged = {"gateway": "f", "run": 1, "since": 1 << 62, "claims": [["x", 0, False]]}
    outsider = tree.client()
    outsider.publish(CLAIMS + "f", sign(b"", "", forged), 1)
    tree.world.run(SECOND)
    client = one.connect("x")
    assert one.control._context.clock.stamp(tree.world.now).time_us < 1 << 61
    assert client.closed is None


def test_a_claim_without_the_networks_key_is_dropped() -> None:
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
def test_malformed_messages_of_gateways_are_dropped(kind: str, payload: bytes) -> None:
    tree = Tree.grow(1, ("home",))
    one = FakeGateway(tree, "one").ready()
    tree.client().publish(f"$gateway/{kind}/x", payload, 1)
    tree.world.run(SECOND)
    assert one.connect("a").is_accepted


def test_a_clean_start_ends_the_session_at_all_owners() -> None:
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


def test_a_clean_start_with_an_expiry_discards_the_former_messages() -> None:
    tree, one, _, client = subscriber()
    client.disconnect()
    tree.world.run(SECOND)
    one.publish("home/oven", b"old")
    fresh = one.connect("a", clean_start=True, session_expiry_s=100)
    assert fresh.subscribe("home/lamp") == [1]
    one.publish("home/lamp", b"new")
    one.publish("home/oven", b"new")
    tree.world.run(2 * SECOND)
    assert fresh.taken == [("home/lamp", b"new")]


def test_before_mqtt_5_clean_session_decides() -> None:
    tree, one, two = two_gateways()
    one.connect("a", version=4, clean_start=False).disconnect()
    tree.world.run(SECOND)
    assert two.connect("a", version=4, clean_start=False).is_present
    assert not one.connect("a", version=4, clean_start=True).is_present
    assert not two.connect("a", version=4, clean_start=False).is_present


def test_a_session_without_an_expiry_ends_with_its_connection() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a")
    client.subscribe("home/#", qos=2)
    client.drop()
    tree.world.run(SECOND)
    assert tree.nodes["home"].engine.matching("home/x") == 0
    assert not two.connect("a", clean_start=False).is_present


def test_a_session_ends_when_it_has_been_offline_for_its_expiry() -> None:
    tree, one, two, client = subscriber()
    client.drop()
    tree.world.run(99 * SECOND)
    assert records(one) == records(two) == 1
    tree.world.run(3 * SECOND)
    assert records(one) == records(two) == 0
    assert tree.nodes["home"].engine.matching("home/x") == 0
    assert not two.connect("a", **KEPT).is_present


def test_a_session_that_is_connected_at_another_gateway_does_not_expire() -> None:
    tree, one, two, client = subscriber()
    client.drop()
    again = two.connect("a", **KEPT)
    tree.world.run(300 * SECOND)
    assert records(one) == 1
    assert again.closed is None
    one.publish("home/x", b"1")
    tree.world.run_until(lambda: again.taken == [("home/x", b"1")])


@pytest.mark.parametrize("gives_up", [False, True])
@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_a_session_of_a_dead_gateway_survives_a_client_that_closes_before_connack(
    name: str, gives_up: bool
) -> None:
    """The client id decides whether the second or the third gateway is responsible for the session."""
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
def test_a_session_of_a_dead_gateway_expires_after_its_client_closed_before_connack(name: str) -> None:
    """The session lasts 100 s from when its gateway is known to be dead. The client closes its connection
    shortly before that time is over. With these client ids the third gateway is responsible for the
    session."""
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
def test_disconnect_changes_the_session_expiry(changed: int | None, lives: int) -> None:
    tree, _, two, client = subscriber()
    client.disconnect(session_expiry_s=changed)
    tree.world.run(SECOND)
    owner = tree.nodes["home"].engine
    tree.world.run(max(0, lives - 5) * SECOND)
    assert records(two) == owner.matching("home/x") == (1 if lives else 0)
    tree.world.run(10 * SECOND)
    assert records(two) == owner.matching("home/x") == 0


def test_disconnect_cannot_set_an_expiry_if_connect_had_none() -> None:
    tree, one, two = two_gateways()
    client = one.connect("a", session_expiry_s=0)
    client.subscribe("home/#")
    client.disconnect(session_expiry_s=100)
    tree.world.run(SECOND)
    assert records(two) == 0


def test_a_session_resumed_without_an_expiry_ends_with_that_connection() -> None:
    tree, one, two, client = subscriber()
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


def test_the_state_of_messages_in_flight_moves_with_the_session() -> None:
    tree, one, two, client = subscriber()
    client.session.state = SessionState(received=(9, 11), block=7)
    client.session.connection = None  # so it does not answer any more
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


def test_the_record_of_a_session_is_read_back() -> None:
    will = WillMessage("t", b"\x00\xff", 2, True, 0, 9, "text", 1, "r", b"\xfe", (("a", "b"),))
    state = SessionState((InFlight(1, 1 << 63, 2, 2, True),), (3, 4), 5)
    options = SubscribeOptions(2, True, True, 2)
    record = SessionRecord(
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
    assert SessionRecord.parse(record.body()) == record
    assert SessionRecord.parse({**record.body(), "subscriptions": [[1]]}) is None


def test_a_block_that_was_used_before_is_told_from_a_new_one() -> None:
    blocks = [0]
    while len(blocks) < 20:
        blocks.append(next_block(blocks[-1]))
    assert blocks == [*range(2 * PACKET_ID_BLOCKS), *range(PACKET_ID_BLOCKS, 2 * PACKET_ID_BLOCKS)][:20]
    for block, is_read in ((2 * PACKET_ID_BLOCKS - 1, True), (2 * PACKET_ID_BLOCKS, False)):
        state = SessionState(block=block)
        record = SessionRecord("c", "g", 1, 10, None, False, (), state, None)
        assert (SessionRecord.parse(record.body()) == record) is is_read


class TestDeaths:
    """A gateway or an owner is gone."""

    def test_clients_of_a_dead_gateway_resume_at_another(self) -> None:
        tree, one, two, client = subscriber()
        two.publish("home/x", b"1")
        tree.world.run(SECOND)
        assert client.taken == [("home/x", b"1")]
        one.kill()
        two.publish("home/x", b"2")
        again = two.connect("a", **KEPT)
        assert again.is_present
        assert again.session.state == SessionState(block=1), "nothing is known of what was in flight"
        tree.world.run_until(lambda: ("home/x", b"2") in again.taken)

    def test_a_claim_waits_for_a_dead_gateway_only_for_a_few_seconds(self) -> None:
        tree, one, two = two_gateways()
        one.connect("a", **KEPT)
        one.kill()
        began = tree.world.now
        two.connect("a", **KEPT)
        assert tree.world.now - began <= 7 * SECOND

    def test_one_of_the_remaining_gateways_ends_the_sessions_of_a_dead_one(self) -> None:
        tree, one, two = two_gateways()
        three = FakeGateway(tree, "three").ready()
        one.connect("offline", **KEPT).drop()
        one.connect("connected", **KEPT).subscribe("home/#")
        tree.world.run(SECOND)
        one.kill()
        tree.world.run(90 * SECOND)
        assert records(two) == records(three) == 2
        tree.world.run(150 * SECOND)
        assert records(two) == records(three) == 0
        expired = [g.control.counters().get("sessions_expired", 0) for g in (two, three)]
        assert sum(expired) == 2

    def test_a_gateway_that_starts_again_knows_the_sessions(self) -> None:
        tree, one, two, _ = subscriber()
        one.kill()
        two.kill()
        tree.world.run(5 * SECOND)
        again = FakeGateway(tree, "one").ready().connect("a", **KEPT)
        assert again.is_present
        assert again.gateway.native_api.listeners

    def test_clients_connect_while_the_root_is_down(self) -> None:
        tree, one, two, _ = subscriber()
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

    def test_two_connections_of_one_client_while_the_root_was_down_become_one(self) -> None:
        tree, one, two = two_gateways()
        tree.root.kill()
        first, second = one.connect("a"), two.connect("a")
        assert [first.closed, second.closed] == [None, None]
        tree.root.restart(remembers=True)
        tree.world.run(60 * SECOND)
        assert [first.closed, second.closed] == [0x8E, None]

    def test_records_are_published_again_when_their_owner_lost_them(self) -> None:
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

    def test_a_client_that_closes_before_connack_does_not_end_its_session(self) -> None:
        tree, one, two, client = subscriber()
        client.drop()
        tree.world.run(SECOND)
        two.begin("a", **KEPT).drop()
        tree.world.run(SECOND)
        assert records(one) == 1
        assert one.connect("a", **KEPT).is_present

    def test_a_session_whose_client_closed_before_connack_still_expires(self) -> None:
        tree, one, two = two_gateways()
        one.connect("a", **KEPT).drop()
        tree.world.run(SECOND)
        two.begin("a", **KEPT).drop()
        tree.world.run(200 * SECOND)
        assert records(one) == records(two) == 0


def test_takeovers_over_a_bad_path_lose_no_session_and_duplicate_none() -> None:
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


def test_the_network_session_id_depends_on_client_id_and_key_alone() -> None:
    assert network_session("a", b"k") == network_session("a", b"k")
    assert len({network_session(c, k) for c in ("a", "b") for k in (b"", b"k")}) == 4


def test_a_session_survives_the_loss_of_its_state_in_the_core() -> None:
    tree, one, two, client = subscriber()

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
