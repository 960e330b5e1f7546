"""Session Present of CONNACK, and the messages that follow (MQTT 5 §3.2.2.1.1).

Session Present is 1 only if every owner still has the session. Then all acknowledged messages are delivered.
If an owner has lost the session, it is 0, and the messages that the other owners hold are delivered once the
client has subscribed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from hbroker import _native
from hbroker.gateway import native_api
from hbroker.gateway.native_api import InFlight, SessionState
from hbroker.gateway.sessions.stale_sessions import RESUBSCRIBE_TIMEOUT, forgotten
from hbroker.protocol.results import Published
from tests.gateway.networks import SECOND, Client, FakeGateway, WillMessage, two_gateways
from tests.network.networks import Tree

KEPT: Final[dict[str, Any]] = {"clean_start": False, "session_expiry_s": 600}
FILTERS: Final = ("home/#", "office/#", "yard/#")
"""One filter of each owner: two nodes, and the root."""
TOPICS: Final = ("home/oven", "office/lamp", "yard/gate")
LONG: Final = 60 * SECOND
"""Longer than any lease, and longer than an owner waits for its former subscribers."""


@dataclass
class TwoGateways:
    """A network with two gateways. The client is offline while something happens."""

    tree: Tree
    one: FakeGateway
    two: FakeGateway

    def publish(self, *topics: str) -> list[tuple[str, bytes]]:
        """Publishes three messages on each topic, and waits until their owners have acknowledged them."""
        publisher = self.tree.client()
        sent = [(topic, b"%d" % number) for number in range(3) for topic in topics]
        for topic, payload in sent:
            publisher.publish(topic, payload, 1)
        self.tree.world.run_until(
            lambda: [o.reason for o in publisher.results if isinstance(o, Published)] == [0] * len(sent)
        )
        return sent


def client_offline(qos: int = 1) -> TwoGateways:
    """A client has subscribed, and has disconnected from the first gateway."""
    tree, one, two = two_gateways(subtrees=("home", "office"))
    client = one.connect("a", **KEPT)
    client.subscribe(*FILTERS, qos=qos)
    client.disconnect()
    tree.world.run(SECOND)
    return TwoGateways(tree, one, two)


def nothing(network: TwoGateways) -> None:
    pass


def owner_restarted(network: TwoGateways) -> None:
    """The owner is killed, and the launcher starts it again."""
    home = network.tree.nodes["home"]
    home.kill()
    network.tree.nodes["home"] = home.restart(remembers=True)
    network.tree.world.run(LONG)


def owner_lost_its_files_too(network: TwoGateways) -> None:
    home = network.tree.nodes["home"]
    home.kill()
    network.tree.nodes["home"] = home.restart()
    network.tree.world.run(LONG)


def subtree_taken_back(network: TwoGateways) -> None:
    """The owner is gone for good, and its parent has taken the subtree back."""
    network.tree.nodes["home"].kill()
    network.tree.world.run_until(lambda: network.tree.root.owns("home/oven"))
    network.tree.world.run(LONG)


def owner_away(network: TwoGateways) -> None:
    """No node can tell whether the owner still has the session."""
    network.tree.nodes["home"].kill()


def root_restarted(network: TwoGateways) -> None:
    """The root owns a part of the session, and the gateways' records."""
    network.tree.root.kill()
    network.tree.root = network.tree.root.restart(remembers=True)
    network.tree.world.run(LONG)


def subtree_moved(network: TwoGateways) -> None:
    """A regular handover: the session moves along."""
    network.tree.leave(network.tree.nodes["home"])
    network.tree.world.run(LONG)


def gateway_killed(network: TwoGateways) -> None:
    network.one.kill()
    network.tree.world.run(LONG)


def owner_and_gateway_killed(network: TwoGateways) -> None:
    owner_restarted(network)
    network.one.kill()
    network.tree.world.run(LONG)


def session_expired(network: TwoGateways) -> None:
    network.tree.world.run(700 * SECOND)


CASES: Final[list[tuple[Callable[[TwoGateways], None], bool, tuple[str, ...]]]] = [
    (nothing, True, TOPICS),
    (gateway_killed, True, TOPICS),
    (subtree_moved, True, TOPICS),
    (owner_restarted, False, TOPICS[1:]),
    (owner_lost_its_files_too, False, TOPICS[1:]),
    (subtree_taken_back, False, TOPICS[1:]),
    (owner_away, False, TOPICS[1:]),
    (root_restarted, False, TOPICS[:2]),
    (owner_and_gateway_killed, False, TOPICS[1:]),
    (session_expired, False, ()),
]
"""The event, the Session Present flag of CONNACK, and the topics whose owners still hold the acknowledged
messages."""
NAMES: Final = [case[0].__name__ for case in CASES]


@pytest.mark.parametrize(("to_other", "qos"), [(False, 2), (True, 1)], ids=["same-2", "other-1"])
@pytest.mark.parametrize(("happens", "is_present", "survive"), CASES, ids=NAMES)
def test_session_present_tells_whether_all_acknowledged_messages_are_delivered(
    happens: Callable[[TwoGateways], None],
    is_present: bool,
    survive: tuple[str, ...],
    to_other: bool,
    qos: int,
) -> None:
    network = client_offline(qos)
    tree, one, two = network.tree, network.one, network.two
    sent = network.publish(*TOPICS)
    happens(network)
    gateway = two if to_other or not one.native_api.is_alive else one
    back = gateway.connect("a", **KEPT)
    assert back.is_present == is_present
    if not is_present:
        tree.world.run(SECOND)
        assert back.taken == [], "it has not subscribed to anything"
        assert back.subscribe(*FILTERS[1:] if happens is owner_away else FILTERS, qos=qos)
    held = Counter(message for message in sent if message[0] in survive)
    tree.world.run_until(lambda: Counter(back.taken) >= held)
    tree.world.run(5 * SECOND)
    assert Counter(back.taken) == held


def lost_session() -> tuple[TwoGateways, Client, list[tuple[str, bytes]]]:
    """A client whose CONNACK said that its session is gone, and the messages that its owners had
    acknowledged for it."""
    network = client_offline()
    sent = network.publish(*TOPICS)
    owner_restarted(network)
    back = network.one.connect("a", **KEPT)
    assert not back.is_present
    return network, back, sent


@pytest.mark.parametrize("is_killed", [False, True], ids=["dropped", "killed"])
def test_session_present_is_0_again_if_the_client_may_not_have_received_the_first_connack(
    is_killed: bool,
) -> None:
    """By then the owners have the subscriptions again, and none of the messages."""
    network, back, sent = lost_session()
    if is_killed:
        network.one.kill()
        network.tree.world.run(LONG)
    else:
        back.drop()
    again = network.two.connect("a", **KEPT)
    assert not again.is_present
    again.subscribe(*FILTERS)
    held = Counter(message for message in sent if message[0] != "home/oven")
    network.tree.world.run_until(lambda: Counter(again.taken) == held)
    again.disconnect()
    assert network.one.native_api.is_alive is not is_killed
    assert network.two.connect("a", **KEPT).is_present


def test_subscriptions_of_a_lost_session_that_are_not_repeated_end_after_a_while() -> None:
    network, back, sent = lost_session()
    back.subscribe("office/#")
    held = Counter(message for message in sent if message[0] == "office/lamp")
    network.tree.world.run_until(lambda: Counter(back.taken) == held)
    assert network.tree.root.engine.matching("yard/gate") == 1
    network.tree.world.run(RESUBSCRIBE_TIMEOUT + 5 * SECOND)
    assert network.tree.root.engine.matching("yard/gate") == 0
    assert network.tree.nodes["home"].engine.matching("home/oven") == 0
    assert network.tree.nodes["office"].engine.matching("office/lamp") == 1
    back.disconnect()
    again = network.two.connect("a", **KEPT)
    assert again.is_present
    assert {known.filter for known in network.two.native_api.listeners.values()} == {"office/#"}


def test_a_clean_start_discards_the_rest_of_a_lost_session() -> None:
    network, back, _ = lost_session()
    back.drop()
    fresh = network.two.connect("a", clean_start=True, session_expiry_s=600)
    assert not fresh.is_present
    fresh.subscribe(*FILTERS)
    network.tree.world.run(10 * SECOND)
    assert fresh.taken == []


def test_a_lost_session_without_an_expiry_leaves_nothing_behind() -> None:
    network = client_offline()
    owner_restarted(network)
    tree, one = network.tree, network.one
    back = one.connect("a", clean_start=False, session_expiry_s=0)
    assert not back.is_present
    back.drop()
    tree.world.run(20 * SECOND)
    assert tree.root.engine.matching("yard/gate") == 0
    assert tree.nodes["office"].engine.matching("office/lamp") == 0
    assert one.control.counters()["records"] == 0


def test_session_present_does_not_depend_on_subscriptions_at_qos_0() -> None:
    """No owner holds anything for such a subscription."""
    network = client_offline(qos=0)
    owner_restarted(network)
    assert network.two.connect("a", **KEPT).is_present


def test_the_will_of_a_client_whose_session_was_lost_is_registered() -> None:
    network = client_offline()
    owner_restarted(network)
    watcher = network.two.connect("w")
    watcher.subscribe("office/will")
    back = network.one.connect("a", will=WillMessage("office/will", b"gone"), **KEPT)
    assert not back.is_present
    network.one.kill()
    network.tree.world.run_until(lambda: watcher.taken == [("office/will", b"gone")])


@pytest.mark.parametrize("classes", [native_api, _native])
def test_the_state_of_qos_2_to_the_client_is_discarded_with_a_lost_session(classes: Any) -> None:
    state = classes.SessionState(
        tuple(classes.InFlight(*m) for m in [(1, 7, 8, 2, True), (2, 7, 9, 2, False), (3, 0, 0, 2, True)]),
        (4,),
        7,
    )
    assert forgotten(state) == SessionState((InFlight(0, 7, 8, 2, True),), (), 8)


def test_owners_deliver_what_they_hold_even_if_the_record_is_lost() -> None:
    """R9: the record was lost with the owner of `$gateway` and the only gateway."""
    tree = Tree.grow(1, ("home", "office"))
    one = FakeGateway(tree, "one").ready()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#", "office/#")
    client.disconnect()
    tree.world.run(SECOND)
    network = TwoGateways(tree, one, one)
    sent = network.publish("home/oven", "office/lamp")
    one.kill()
    tree.root.kill()
    tree.root = tree.root.restart(remembers=True)
    tree.world.run(LONG)
    two = FakeGateway(tree, "one").ready()
    back = two.connect("a", **KEPT)
    assert not back.is_present
    back.subscribe("home/#", "office/#")
    tree.world.run_until(lambda: Counter(back.taken) == Counter(sent))
