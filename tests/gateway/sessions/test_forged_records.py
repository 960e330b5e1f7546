"""Forged and replayed messages below `$gateway` change nothing (§5.5)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from hbroker.gateway.records.client_id_claims import Stamp
from hbroker.gateway.records.gateways import GatewayRecords
from hbroker.gateway.records.record_authentication import SESSIONS, client_hash, sign
from hbroker.gateway.records.session_records import (
    MOST_SESSION_ENDS,
    SessionEnd,
    SessionRecord,
    SessionRecords,
)
from hbroker.sim.network import ClientHost
from tests.gateway.networks import SECOND, Client, FakeGateway, two_gateways
from tests.network.networks import Tree

KEY: Final = b"a secret of enough bytes"
KEPT: Final[dict[str, Any]] = {"clean_start": False, "session_expiry_s": 3_600}
TOPIC: Final = SESSIONS + client_hash("a")


class Stranger:
    """A native client that reads and writes these topics without the key."""

    def __init__(self, tree: Tree, *gateways: FakeGateway) -> None:
        self.world = tree.world
        self.gateways = gateways
        self.host = ClientHost(tree.world, tree.root.address, "stranger")
        self.host.subscribe("$gateway/#", 1)
        self.world.run(SECOND)

    def write(self, payload: bytes, topic: str = TOPIC) -> None:
        self.host.publish(topic, payload, 1, True)
        for _ in range(2):
            self.world.run(SECOND)
            for gateway in self.gateways:
                gateway.settle()

    def read(self, topic: str = TOPIC) -> list[bytes]:
        return [message.payload for message in self.host.messages if message.topic == topic]


def connected_client(filter: str = "home/#") -> tuple[Tree, Stranger, Client]:
    """A client with a persistent session at the first of two gateways."""
    tree, one, two = two_gateways(key=KEY)
    stranger = Stranger(tree, one, two)
    client = one.connect("a", **KEPT)
    client.subscribe(filter)
    tree.world.run(SECOND)
    return tree, stranger, client


def offline_session() -> tuple[Stranger, FakeGateway, FakeGateway]:
    """A client with a persistent session has disconnected, and a message was queued for it since."""
    tree, stranger, client = connected_client()
    one, two = stranger.gateways
    client.drop()
    tree.world.run(SECOND)
    two.publish("home/x", b"1")
    tree.world.run(SECOND)
    return stranger, one, two


class _Root:
    def __init__(self, host: ClientHost) -> None:
        self.address = host.control._context.root


@pytest.mark.parametrize("payload", [b"", b"{}", b"not sealed" * 10])
def test_a_forged_record_does_not_end_a_session(payload: bytes) -> None:
    stranger, _, two = offline_session()
    true = stranger.read()[-1]
    stranger.write(payload)
    assert stranger.read()[-1] == true, "who sees to it writes it again"
    again = two.connect("a", **KEPT)
    assert again.is_present
    stranger.world.run_until(lambda: ("home/x", b"1") in again.taken)


def test_the_gateway_of_a_connected_client_restores_its_record() -> None:
    _, stranger, client = connected_client()
    true = stranger.read()[-1]
    stranger.write(b"")
    assert stranger.read()[-1] == true
    assert client.closed is None
    assert client.gateway.control.counters()["records_restored"] == 1


def test_an_older_record_does_not_replace_a_newer_one() -> None:
    tree, stranger, client = connected_client("home/x")
    old = stranger.read()[-1]
    client.subscribe("home/y")
    tree.world.run(SECOND)
    client.drop()
    tree.world.run(SECOND)
    true = stranger.read()[-1]
    stranger.write(old)
    assert stranger.read()[-1] == true
    assert stranger.gateways[1].connect("a", **KEPT).is_present
    tree.world.run(SECOND)
    assert tree.nodes["home"].engine.matching("home/y") == 1


@pytest.mark.parametrize("ahead_s", [-3_600, 0, 3_600])
def test_a_replayed_record_does_not_bring_an_ended_session_back(ahead_s: int) -> None:
    """Whichever gateway ended the session, and whatever the clocks of the two show."""
    stranger, _, two = offline_session()
    old = stranger.read()[-1]
    two.control._context.clock._unix_offset_us += ahead_s * SECOND
    client = two.connect("a", clean_start=True)
    client.disconnect()
    stranger.world.run(SECOND)
    assert stranger.read()[-1] == b"", "once all know, nothing stands there"
    stranger.write(old)
    assert stranger.read()[-1] == b""
    late = FakeGateway(Tree(stranger.world, _Root(stranger.host)), "late", key=KEY)  # type: ignore[arg-type]
    late.ready()
    assert not late.connect("a", **KEPT).is_present


def test_a_session_moves_between_gateways_whatever_their_clocks_show() -> None:
    for ahead_s in (-600, 600):
        tree = Tree.grow(1, ["home"])
        one = FakeGateway(tree, "one", key=KEY, clock_ahead_us=0).ready()
        two = FakeGateway(tree, "two", key=KEY, clock_ahead_us=ahead_s * SECOND).ready()
        for turn in range(4):
            client = (one, two)[turn % 2].connect("a", **KEPT)
            client.subscribe(f"home/{turn}")
            assert client.is_present == bool(turn), (ahead_s, turn)
            tree.world.run(SECOND)
        tree.world.run(SECOND)
        assert all(tree.nodes["home"].engine.matching(f"home/{turn}") for turn in range(4))


def test_the_remembered_ends_of_sessions_are_bounded() -> None:
    records = SessionRecords(KEY, GatewayRecords("one", 1), 0)
    for number in range(MOST_SESSION_ENDS + 10):
        records.put_end(SessionEnd(f"c{number}", Stamp(1, 1)), b"x")
    assert len(records._ended) == MOST_SESSION_ENDS
    assert not records.is_over(SESSIONS + client_hash("c9"))
    assert records.is_over(SESSIONS + client_hash("c10"))


def test_the_record_with_the_highest_stamp_counts_in_any_order() -> None:
    def record(at: int, expiry_s: int) -> bytes:
        made = SessionRecord("a", "g", 7, expiry_s, 20, stamp=Stamp(at, 7))
        return sign(KEY, TOPIC, made.body())

    ending = SessionEnd("a", Stamp(5, 7))
    said = sign(KEY, TOPIC, ending.body())
    records = SessionRecords(KEY, GatewayRecords("one", 1), 0)
    assert records.handle_payload(0, TOPIC, record(3, 3))
    assert not records.handle_payload(0, TOPIC, record(2, 2))
    assert records.handle_payload(0, TOPIC, said)
    assert not records.handle_payload(0, TOPIC, record(4, 4))
    assert records.of("a") is None
    assert records.handle_payload(0, TOPIC, record(6, 6))
    assert not records.handle_payload(0, TOPIC, said)
    found = records.of("a")
    assert found is not None
    assert found.expiry_s == 6
    assert records.stamp_after("a", Stamp(1, 9)) == Stamp(7, 9)
    other = SESSIONS + client_hash("b")
    assert records.handle_payload(0, other, record(8, 8)), (
        "it is of another topic, and of nobody who is known"
    )
    assert records.of("b") is None
