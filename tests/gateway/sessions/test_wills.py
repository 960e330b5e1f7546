"""When a will is published, and that it is published once (MQTT 5 §3.1.2.5, MQTT 5 §3.14)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from hbroker.gateway.native_api import WillMessage
from hbroker.gateway.records.wills import after_close
from tests.gateway.networks import SECOND, Client, FakeGateway, two_gateways
from tests.network.networks import Tree

KEPT: Final[dict[str, Any]] = {"clean_start": False, "session_expiry_s": 100}
WILL: Final = WillMessage("home/status", b"gone", qos=1)


def later(delay_s: int) -> WillMessage:
    return WillMessage("home/status", b"gone", qos=1, delay_s=delay_s)


class Watched:
    """Two gateways, and a client at the second one that receives all wills."""

    def __init__(self, seed: int = 1, subtrees: tuple[str, ...] = ("home",)) -> None:
        self.tree, self.one, self.two = two_gateways(seed, subtrees)
        self.watcher: Client = self.two.connect("watcher")
        self.watcher.subscribe("home/status", qos=2)

    def run(self, seconds: float) -> int:
        """Lets time pass. Returns the number of wills that were published until then."""
        self.tree.world.run(round(seconds * SECOND))
        assert {payload for _, payload in self.watcher.taken} <= {b"gone"}
        return len(self.watcher.taken)


@pytest.mark.parametrize(("reason", "published"), [(None, 1), (0x00, 0), (0x04, 1), (0x80, 1), (0x82, 1)])
@pytest.mark.parametrize("expiry", [0, 100])
def test_a_will_is_published_unless_the_client_disconnects_normally(
    reason: int | None, published: int, expiry: int
) -> None:
    watched = Watched()
    client = watched.one.connect("a", will=WILL, clean_start=False, session_expiry_s=expiry)
    assert watched.run(1) == 0
    client.drop() if reason is None else client.disconnect(reason)
    assert watched.run(2) == published
    assert watched.run(60) == published


@pytest.mark.parametrize(
    ("delay", "expiry", "after"), [(0, 100, 0), (30, 100, 30), (100, 30, 30), (30, 0, 0), (0, 0, 0)]
)
def test_the_will_delay_is_no_longer_than_the_session_expiry(delay: int, expiry: int, after: int) -> None:
    watched = Watched()
    client = watched.one.connect("a", will=later(delay), clean_start=False, session_expiry_s=expiry)
    client.drop()
    if after:
        assert watched.run(after - 1) == 0
    assert watched.run(3) == 1
    assert watched.run(200) == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("expiry", [0, 100])
def test_a_will_is_published_at_an_owner_that_joined_after_the_gateway_resolved_its_topic(
    qos: int, expiry: int
) -> None:
    """The gateway's cached zone is older than that owner, and a message at QoS 0 that an owner refuses is
    lost."""
    watched = Watched(subtrees=())
    watched.one.publish("home/other", b"so that it knows the root's zone")
    watched.run(1)
    watched.tree.join("home")
    will = WillMessage("home/status", b"gone", qos=qos)
    client = watched.one.connect("a", will=will, clean_start=False, session_expiry_s=expiry)
    client.drop()
    assert watched.run(3) == 1
    assert watched.run(60) == 1


@pytest.mark.parametrize("gateway", ["one", "two"])
def test_a_will_is_not_published_if_the_client_is_back_before_its_delay_is_over(gateway: str) -> None:
    watched = Watched()
    watched.one.connect("a", will=later(30), **KEPT).drop()
    watched.run(20)
    back = getattr(watched, gateway).connect("a", **KEPT)
    assert back.is_present
    assert watched.run(120) == 0


@pytest.mark.parametrize("gateway", ["one", "two"])
def test_a_clean_start_ends_the_session_and_with_it_the_will_delay(gateway: str) -> None:
    watched = Watched()
    watched.one.connect("a", will=later(30), **KEPT).drop()
    watched.run(10)
    getattr(watched, gateway).connect("a", clean_start=True)
    assert watched.run(3) == 1
    assert watched.run(60) == 1


@pytest.mark.parametrize("gateway", ["one", "two"])
@pytest.mark.parametrize(
    ("delay", "clean", "published"), [(0, False, 1), (0, True, 1), (30, False, 0), (30, True, 1)]
)
def test_a_takeover_publishes_a_will_without_a_delay_or_with_a_clean_start(
    gateway: str, delay: int, clean: bool, published: int
) -> None:
    watched = Watched()
    client = watched.one.connect("a", will=later(delay), **KEPT)
    getattr(watched, gateway).connect("a", clean_start=clean, session_expiry_s=100)
    assert client.closed == 0x8E
    assert watched.run(3) == published
    assert watched.run(120) == published


@pytest.mark.parametrize("pause_us", [0, 500, 1_000, 2_000, 5_000])
@pytest.mark.parametrize("session_options", [KEPT, {}], ids=["kept", "clean"])
def test_a_will_is_published_before_the_client_connects_at_another_gateway(
    pause_us: int, session_options: dict[str, Any]
) -> None:
    """Otherwise its owner, which stores the will too, would publish it when the client's next session
    begins."""
    watched = Watched()
    watched.one.connect("a", will=WILL, **session_options).drop()
    watched.tree.world.run(pause_us)
    watched.two.connect("a", will=WILL, clean_start=True)
    assert watched.run(60) == 1


@pytest.mark.parametrize("payload", [b"gone", b"x" * 5_000], ids=["kept by its owner", "too large for that"])
def test_the_will_of_the_next_connection_replaces_the_former_one(payload: bytes) -> None:
    watched = Watched()
    watched.one.connect("a", will=WillMessage("home/other", payload, qos=1), **KEPT)
    client = watched.two.connect("a", will=WILL, **KEPT)
    watched.run(1)
    client.drop()
    assert watched.run(2) == 1


def test_a_large_will_is_published() -> None:
    watched = Watched()
    large = WillMessage("home/large", b"x" * 60_000, qos=2, retain=True, user_properties=(("a", "b"),))
    watched.one.connect("a", will=large).drop()
    other = watched.two.connect("b")
    watched.run(1)
    other.subscribe("home/large")
    watched.tree.world.run_until(lambda: other.taken == [("home/large", b"x" * 60_000)])


def test_the_owner_publishes_the_will_when_the_gateway_dies() -> None:
    watched = Watched()
    watched.one.connect("a", will=WILL)
    watched.run(1)
    watched.one.kill()
    assert watched.run(30) == 1
    assert watched.run(100) == 1


def test_another_gateway_publishes_a_delayed_will_of_a_dead_gateway() -> None:
    watched = Watched()
    watched.one.connect("a", will=later(60), **KEPT).drop()
    watched.run(1)
    watched.one.kill()
    assert watched.run(50) == 0
    assert watched.run(90) == 1
    assert watched.run(200) == 1


def test_a_delayed_will_of_a_dead_gateway_is_not_published_if_the_client_is_back_in_time() -> None:
    watched = Watched()
    watched.one.connect("a", will=later(60), **KEPT).drop()
    watched.run(1)
    watched.one.kill()
    watched.run(30)
    assert watched.two.connect("a", **KEPT).is_present
    assert watched.run(200) == 0


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("gives_up", [False, True])
@pytest.mark.parametrize("name", ["b", "c"])
def test_a_will_delay_goes_on_if_the_client_closes_before_connack(
    name: str, gives_up: bool, kills: bool
) -> None:
    """MQTT 5 §3.1.3.2.2: before the delay is over, only the end of the session publishes the will."""
    watched = Watched()
    tree, one, two = watched.tree, watched.one, watched.two
    three = FakeGateway(tree, "three").ready()
    session_options = {"clean_start": False, "session_expiry_s": 3_600}
    one.connect(name, will=later(200), **session_options).drop()
    assert watched.run(2) == 0
    if kills:
        one.kill()
    assert watched.run(30) == 0
    if gives_up:
        two.connect_and_close_before_connack(name, three if kills else one, **session_options)
    assert watched.run(160) == 0
    assert watched.run(20) == 1
    assert watched.run(100) == 1


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("name", ["b", "c"])
def test_a_will_that_a_clean_start_published_is_not_published_again_if_its_client_closes(
    name: str, kills: bool
) -> None:
    watched = Watched()
    tree, one, two = watched.tree, watched.one, watched.two
    three = FakeGateway(tree, "three").ready()
    one.connect(name, will=later(100), **KEPT).drop()
    assert watched.run(2) == 0
    if kills:
        one.kill()
    assert watched.run(30) == 0
    two.connect_and_close_before_connack(name, three if kills else one, clean_start=True)
    assert watched.run(5) == 1
    assert watched.run(200) == 1


def test_a_gateway_that_stops_disconnects_its_clients_and_publishes_their_wills() -> None:
    watched = Watched()
    client = watched.one.connect("a", will=WILL, **KEPT)
    client.subscribe("home/lamp")
    watched.one.control.stop(watched.tree.world.now)
    watched.one.settle()
    assert client.closed == 0x8B
    assert watched.run(2) == 1
    assert watched.one.control.is_idle
    assert watched.one.begin("b").refused == 0x88
    assert watched.two.control._context.gateways.names == ["two"]
    assert watched.two.connect("a", **KEPT).is_present


def test_a_will_is_published_once_its_owner_is_back() -> None:
    watched = Watched()
    client = watched.one.connect("a", will=WILL)
    watched.run(1)
    watched.tree.nodes["home"].stop()
    client.drop()
    assert watched.run(5) == 0
    watched.tree.nodes["home"].resume()
    assert watched.run(10) == 1


def test_a_client_is_accepted_even_if_no_owner_stores_its_will() -> None:
    tree = Tree.grow(1, ("home",))
    gateway = FakeGateway(tree, "one").ready()
    tree.nodes["home"].stop()
    began = tree.world.now
    gateway.connect("a", will=WILL)
    assert tree.world.now - began < 5 * SECOND


def test_the_reason_of_the_disconnect_decides_about_the_will() -> None:
    assert after_close(None, 5, 9, reason=None, ends_session=False) is None
    assert after_close(WILL, 5, 9, reason=0, ends_session=True) is None
    pending = after_close(later(7), 5, 9, reason=4, ends_session=False)
    assert pending is not None
    assert pending.due_us == 5 + 7 * SECOND
