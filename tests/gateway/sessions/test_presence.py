"""The presence of gateways: it cannot be forged without the key, and a replay does not change it."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from hbroker.gateway.records import gateways
from hbroker.gateway.records.client_id_claims import Stamp
from hbroker.gateway.records.gateways import GatewayRecord, GatewayRecordChange, GatewayRecords
from hbroker.gateway.records.record_authentication import verify
from hbroker.sim.network import CLEAR, ClientHost
from tests.gateway.networks import SECOND, Client, FakeGateway, WillMessage, two_gateways
from tests.network.networks import Tree

KEY: Final = b"a secret of enough bytes"
TOPIC: Final = "$gateway/gateways/one"
GONE_AFTER: Final = 30 * SECOND
"""By then the owner has published the will of a killed gateway."""


class Stranger:
    """A native client that reads and writes these topics without the key."""

    def __init__(self, tree: Tree) -> None:
        self.world = tree.world
        self.host: ClientHost = tree.client("stranger")
        self.host.subscribe("$gateway/gateways/+", qos=1)
        self.world.run(2 * SECOND)

    def write(self, payload: bytes) -> None:
        self.host.publish(TOPIC, payload, 1, True)

    def read(self) -> list[bytes]:
        return [bytes(message.payload) for message in self.host.messages if message.topic == TOPIC]

    def retained_presence(self) -> GatewayRecord:
        """The presence that is retained now. It is signed."""
        body = verify(KEY, TOPIC, self.read()[-1])
        assert body is not None
        presence = GatewayRecord.parse(body)
        assert presence is not None
        return presence


def names(gateway: FakeGateway) -> list[str]:
    return gateway.control._context.gateways.names


def count(gateway: FakeGateway, name: str) -> int:
    return gateway.control.counters().get(name, 0)


def watch(gateway: FakeGateway, qos: int) -> Client:
    """A client that receives the wills of `drop_with_will`."""
    watcher = gateway.connect("watcher")
    watcher.subscribe("home/status", qos=qos)
    return watcher


def drop_with_will(gateway: FakeGateway, client: str, qos: int) -> None:
    """Connects a client and breaks its connection. Its will is due 60 s later, and its session lasts 100
    s."""
    will = WillMessage("home/status", b"gone", qos=qos, delay_s=60)
    gateway.connect(client, will=will, clean_start=False, session_expiry_s=100).drop()


@pytest.mark.parametrize("replays", [False, True])
def test_a_dead_gateway_does_not_count_as_alive_after_a_replay(replays: bool) -> None:
    tree, one, two = two_gateways(key=KEY)
    stranger = Stranger(tree)
    watcher = watch(two, qos=1)
    said = stranger.read()[-1]
    drop_with_will(one, "a", qos=1)
    tree.world.run(2 * SECOND)
    one.kill()
    tree.world.run(GONE_AFTER)
    if replays:
        stranger.write(said)
        tree.world.run(3 * SECOND)
        three = FakeGateway(tree, "three", key=KEY).ready()
        assert names(three) == names(two) == ["three", "two"], (
            "it is put right for those that come later, too"
        )
        assert (count(two, "presence_old"), count(two, "presence_restored")) == (1, 1)
    tree.world.run(400 * SECOND)
    assert (watcher.taken, two.control.counters()["records"]) == ([("home/status", b"gone")], 0)


@pytest.mark.parametrize("payload", [b"", b"{}", b"not sealed" * 10])
def test_a_forged_presence_is_replaced_by_the_gateway(payload: bytes) -> None:
    tree, one, two = two_gateways(key=KEY)
    stranger = Stranger(tree)
    true = stranger.read()[-1]
    for _ in range(20):
        stranger.write(payload)
    tree.world.run(5 * SECOND)
    assert stranger.read()[-1] == true
    assert 1 <= count(one, "presence_restored") <= 3, "not for each of them"
    three = FakeGateway(tree, "three", key=KEY).ready()
    assert names(three) == names(two) == ["one", "three", "two"]


@pytest.mark.parametrize("clears", [False, True])
def test_a_will_is_published_once_after_the_presence_of_its_gateway_was_cleared(clears: bool) -> None:
    tree, one, two = two_gateways(key=KEY)
    stranger = Stranger(tree)
    watcher = watch(two, qos=2)
    if clears:
        stranger.write(b"")
    tree.world.run(10 * SECOND)
    FakeGateway(tree, "three", key=KEY).ready()
    for name in "abcdef":
        drop_with_will(one, name, qos=2)
    tree.world.run(80 * SECOND)
    assert len(watcher.taken) == 6


def test_a_gateway_that_was_cut_off_announces_itself_again_and_its_next_will_counts() -> None:
    tree, one, two = two_gateways(key=KEY)
    stranger = Stranger(tree)
    alive = stranger.retained_presence()
    cut_off = {host.address for host in one.native_api.hosts.values()}
    tree.world.path = lambda datagram: None if {datagram.source, datagram.destination} & cut_off else CLEAR
    tree.world.run(GONE_AFTER)
    gone = stranger.retained_presence()
    assert (gone.is_alive, gone.stamp, names(two)) == (False, alive.stamp, ["two"])
    tree.world.path = None
    tree.world.run(GONE_AFTER)
    back = stranger.retained_presence()
    assert (back.is_alive, back.stamp > gone.stamp, names(two)) == (True, True, ["one", "two"])
    for said in stranger.read()[:-1]:
        stranger.write(said)
        tree.world.run(3 * SECOND)
        assert (stranger.retained_presence(), names(two)) == (back, ["one", "two"])
    one.kill()
    tree.world.run(GONE_AFTER)
    assert names(two) == ["two"]


def test_the_will_of_a_gateway_replaces_its_latest_presence() -> None:
    """After the loss of any owner, the gateway announces its presence again."""
    tree, one, two = two_gateways(key=KEY)
    stranger = Stranger(tree)
    first = stranger.retained_presence()
    one.connect("a").subscribe("home/#", qos=0)
    tree.nodes["home"].kill()
    tree.world.run(GONE_AFTER)
    last = stranger.retained_presence()
    assert (last.is_alive, last.stamp > first.stamp) == (True, True)
    one.kill()
    tree.world.run(GONE_AFTER)
    gone = stranger.retained_presence()
    assert (gone.is_alive, gone.stamp, names(two)) == (False, last.stamp, ["two"])


def test_the_presence_of_an_earlier_run_does_not_replace_that_of_the_current_run() -> None:
    tree, one, two = two_gateways(key=KEY)
    stranger = Stranger(tree)
    former = stranger.read()[-1]
    one.kill()
    tree.world.run(GONE_AFTER)
    dead = stranger.read()[-1]
    FakeGateway(tree, "one", key=KEY).ready()
    for old in (former, dead):
        stranger.write(old)
        tree.world.run(3 * SECOND)
        assert stranger.read()[-1] not in (former, dead)
        assert names(two) == ["one", "two"]


@pytest.mark.parametrize("back_s", [0, 3_600, 10 * 86_400])
def test_a_run_whose_clock_was_set_back_replaces_the_presence_of_the_earlier_run(back_s: int) -> None:
    tree = Tree.grow(1, ["home"])
    one = FakeGateway(tree, "one", key=KEY, clock_ahead_us=back_s * SECOND).ready()
    two = FakeGateway(tree, "two", key=KEY).ready()
    one.kill()
    again = FakeGateway(tree, "one", key=KEY).ready()
    run = again.control._context.clock.run
    for _ in range(2):
        assert two.control._context.gateways.is_alive("one", run)
        tree.world.run(GONE_AFTER)  # the will of the earlier run is published, and changes nothing
    again.kill()
    tree.world.run(GONE_AFTER)
    assert names(two) == ["two"]


def test_two_gateways_with_the_same_name_do_not_repeat_their_presence_all_the_time() -> None:
    tree, _, _ = two_gateways(key=KEY)
    FakeGateway(tree, "one", key=KEY).ready()
    stranger = Stranger(tree)
    stranger.write(b"")
    tree.world.run(5 * SECOND)
    before = len(stranger.read())
    tree.world.run(100 * SECOND)
    assert len(stranger.read()) == before
    assert before < 6


def presence(name: str, stamp: int, *, is_alive: bool = True, run: int = 7) -> GatewayRecord:
    return GatewayRecord(name, run, is_alive, stamp=Stamp(stamp, run))


def test_the_presence_with_the_highest_order_counts_in_any_order_of_arrival() -> None:
    said = [presence("two", at, is_alive=is_alive) for at in range(1, 5) for is_alive in (True, False)]
    for seed in range(50):
        order = said * 2
        Random(seed).shuffle(order)
        known, highest = GatewayRecords("one", 1), presence("two", 0)
        for each in order:
            heard = known.update(each, b"%d" % each.stamp.time_us)
            if each.rank > highest.rank:
                assert heard is GatewayRecordChange.NEW
            else:
                assert heard is (
                    GatewayRecordChange.KNOWN if each.rank == highest.rank else GatewayRecordChange.OLD
                )
            highest = max(highest, each, key=lambda each: each.rank)
            assert known.is_alive("two", 7) == highest.is_alive
            assert not known.is_alive("two", 8)
            assert known.correct_payload("two") == (
                None if highest.is_alive else b"%d" % highest.stamp.time_us
            )


def test_the_remembered_gateways_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateways, "MOST", 10)
    known = GatewayRecords("one", 1)
    for number in range(30):
        assert known.update(presence(f"gone{number}", 1, is_alive=False), b"") is GatewayRecordChange.NEW
    assert known.of("gone19") is None
    assert known.of("gone20") is not None
    heard = [known.update(presence(f"g{number}", 1), b"") for number in range(30)]
    assert heard == [GatewayRecordChange.NEW] * 10 + [GatewayRecordChange.TOO_MANY] * 20
    assert known.update(presence("g3", 2, is_alive=False), b"") is GatewayRecordChange.NEW
    assert known.update(presence("g10", 1), b"") is GatewayRecordChange.NEW, "there is room again"
    assert len(known.names) == 11
