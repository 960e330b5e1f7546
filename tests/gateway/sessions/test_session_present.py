"""What CONNACK says of a session, held against what comes of it (MQTT 5 §3.2.2.1.1).

Session present is 1 only where every owner still has the session, and then all comes that was acknowledged.
Where an owner has it no more it is 0, and what the others hold comes once the client has subscribed again.
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
from hbroker.gateway.sessions.stale_sessions import PATIENCE, forgotten
from hbroker.protocol.results import Published
from tests.gateway.networks import SECOND, Client, FakeGateway, WillMessage, two_gateways
from tests.network.networks import Tree

KEPT: Final[dict[str, Any]] = {"clean_start": False, "session_expiry_s": 600}
FILTERS: Final = ("home/#", "office/#", "yard/#")
"""One of each owner: two nodes, and the root."""
TOPICS: Final = ("home/oven", "office/lamp", "yard/gate")
LONG: Final = 60 * SECOND
"""Longer than any lease, and than an owner waits for who had subscribed."""


@dataclass
class Scene:
    """A client that was away while something happened."""

    tree: Tree
    one: FakeGateway
    two: FakeGateway

    def publish(self, *topics: str) -> list[tuple[str, bytes]]:
        """Three messages on each topic, which their owners have acknowledged."""
        publisher = self.tree.client()
        sent = [(topic, b"%d" % number) for number in range(3) for topic in topics]
        for topic, payload in sent:
            publisher.publish(topic, payload, 1)
        self.tree.world.run_until(
            lambda: [o.reason for o in publisher.results if isinstance(o, Published)] == [0] * len(sent)
        )
        return sent


def nothing(scene: Scene) -> None:
    pass


def owner_restarted(scene: Scene) -> None:
    """`kill -9`, and the launcher starts it again."""
    home = scene.tree.nodes["home"]
    home.kill()
    scene.tree.nodes["home"] = home.restart(remembers=True)
    scene.tree.world.run(LONG)


def owner_lost_its_files_too(scene: Scene) -> None:
    home = scene.tree.nodes["home"]
    home.kill()
    scene.tree.nodes["home"] = home.restart()
    scene.tree.world.run(LONG)


def subtree_taken_back(scene: Scene) -> None:
    """The owner is gone for good, and its parent has the subtree."""
    scene.tree.nodes["home"].kill()
    scene.tree.world.run_until(lambda: scene.tree.root.owns("home/oven"))
    scene.tree.world.run(LONG)


def owner_away(scene: Scene) -> None:
    """Nobody can say whether it still has the session."""
    scene.tree.nodes["home"].kill()


def root_restarted(scene: Scene) -> None:
    """It owns a part of the session, and the gateways' records."""
    scene.tree.root.kill()
    scene.tree.root = scene.tree.root.restart(remembers=True)
    scene.tree.world.run(LONG)


def subtree_moved(scene: Scene) -> None:
    """In order: the session went along."""
    scene.tree.leave(scene.tree.nodes["home"])
    scene.tree.world.run(LONG)


def gateway_killed(scene: Scene) -> None:
    scene.one.kill()
    scene.tree.world.run(LONG)


def owner_and_gateway_killed(scene: Scene) -> None:
    owner_restarted(scene)
    scene.one.kill()
    scene.tree.world.run(LONG)


def session_expired(scene: Scene) -> None:
    scene.tree.world.run(700 * SECOND)


CASES: Final[list[tuple[Callable[[Scene], None], bool, tuple[str, ...]]]] = [
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
"""What happens; what CONNACK says; the topics whose owners still hold what they acknowledged."""
NAMES: Final = [case[0].__name__ for case in CASES]


@pytest.mark.parametrize(("to_other", "qos"), [(False, 2), (True, 1)], ids=["same-2", "other-1"])
@pytest.mark.parametrize(("happens", "is_present", "survive"), CASES, ids=NAMES)
def test_connack_says_what_comes(
    happens: Callable[[Scene], None], is_present: bool, survive: tuple[str, ...], to_other: bool, qos: int
) -> None:
    tree, one, two = two_gateways(subtrees=("home", "office"))
    scene = Scene(tree, one, two)
    client = one.connect("a", **KEPT)
    client.subscribe(*FILTERS, qos=qos)
    client.disconnect()
    tree.world.run(SECOND)
    sent = scene.publish(*TOPICS)
    happens(scene)
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


def lost(seed: int = 1) -> tuple[Scene, Client, list[tuple[str, bytes]]]:
    """A client that was told that its session is gone, and what its owners had acknowledged for it."""
    tree, one, two = two_gateways(seed, subtrees=("home", "office"))
    scene = Scene(tree, one, two)
    client = one.connect("a", **KEPT)
    client.subscribe(*FILTERS)
    client.disconnect()
    tree.world.run(SECOND)
    sent = scene.publish(*TOPICS)
    owner_restarted(scene)
    back = one.connect("a", **KEPT)
    assert not back.is_present
    return scene, back, sent


@pytest.mark.parametrize("is_killed", [False, True], ids=["dropped", "killed"])
def test_who_may_not_have_heard_it_is_told_again(is_killed: bool) -> None:
    """Owners have the subscriptions again by then, and none of the messages."""
    scene, back, sent = lost()
    if is_killed:
        scene.one.kill()
        scene.tree.world.run(LONG)
    else:
        back.drop()
    again = scene.two.connect("a", **KEPT)
    assert not again.is_present
    again.subscribe(*FILTERS)
    held = Counter(message for message in sent if message[0] != "home/oven")
    scene.tree.world.run_until(lambda: Counter(again.taken) == held)
    again.disconnect()
    assert scene.one.native_api.is_alive is not is_killed
    assert scene.two.connect("a", **KEPT).is_present


def test_what_is_not_subscribed_to_again_ends_after_a_while() -> None:
    scene, back, sent = lost()
    back.subscribe("office/#")
    held = Counter(message for message in sent if message[0] == "office/lamp")
    scene.tree.world.run_until(lambda: Counter(back.taken) == held)
    assert scene.tree.root.engine.matching("yard/gate") == 1
    scene.tree.world.run(PATIENCE + 5 * SECOND)
    assert scene.tree.root.engine.matching("yard/gate") == 0
    assert scene.tree.nodes["home"].engine.matching("home/oven") == 0
    assert scene.tree.nodes["office"].engine.matching("office/lamp") == 1
    back.disconnect()
    again = scene.two.connect("a", **KEPT)
    assert again.is_present
    assert {known.filter for known in scene.two.native_api.listeners.values()} == {"office/#"}


def test_a_clean_start_ends_what_was_left_over() -> None:
    scene, back, _ = lost()
    back.drop()
    fresh = scene.two.connect("a", clean_start=True, session_expiry_s=600)
    assert not fresh.is_present
    fresh.subscribe(*FILTERS)
    scene.tree.world.run(10 * SECOND)
    assert fresh.taken == []


def test_a_session_that_is_not_to_be_kept_leaves_nothing() -> None:
    tree, one, two = two_gateways(subtrees=("home", "office"))
    scene = Scene(tree, one, two)
    client = one.connect("a", **KEPT)
    client.subscribe(*FILTERS)
    client.disconnect()
    tree.world.run(SECOND)
    owner_restarted(scene)
    back = one.connect("a", clean_start=False, session_expiry_s=0)
    assert not back.is_present
    back.drop()
    tree.world.run(20 * SECOND)
    assert tree.root.engine.matching("yard/gate") == 0
    assert tree.nodes["office"].engine.matching("office/lamp") == 0
    assert one.control.counters()["records"] == 0


def test_qos_0_says_nothing_of_the_session() -> None:
    """No owner holds anything for it."""
    tree, one, two = two_gateways(subtrees=("home", "office"))
    client = one.connect("a", **KEPT)
    client.subscribe(*FILTERS, qos=0)
    client.disconnect()
    tree.world.run(SECOND)
    owner_restarted(Scene(tree, one, two))
    assert two.connect("a", **KEPT).is_present


def test_a_will_is_kept_for_a_client_that_begins_anew() -> None:
    tree, one, two = two_gateways(subtrees=("home", "office"))
    scene = Scene(tree, one, two)
    client = one.connect("a", **KEPT)
    client.subscribe(*FILTERS)
    client.disconnect()
    tree.world.run(SECOND)
    owner_restarted(scene)
    watcher = two.connect("w")
    watcher.subscribe("office/will")
    back = one.connect("a", will=WillMessage("office/will", b"gone"), **KEPT)
    assert not back.is_present
    one.kill()
    tree.world.run_until(lambda: watcher.taken == [("office/will", b"gone")])


@pytest.mark.parametrize("classes", [native_api, _native])
def test_what_the_client_had_of_qos_2_is_not_sent_again(classes: Any) -> None:
    state = classes.SessionState(
        tuple(classes.InFlight(*m) for m in [(1, 7, 8, 2, True), (2, 7, 9, 2, False), (3, 0, 0, 2, True)]),
        (4,),
        7,
    )
    assert forgotten(state) == SessionState((InFlight(0, 7, 8, 2, True),), (), 0)


def test_without_a_record_owners_still_give_what_they_hold() -> None:
    """R9: the record died with the owner of `$gateway` and the only gateway."""
    tree = Tree.grow(1, ("home", "office"))
    one = FakeGateway(tree, "one").ready()
    client = one.connect("a", **KEPT)
    client.subscribe("home/#", "office/#")
    client.disconnect()
    tree.world.run(SECOND)
    scene = Scene(tree, one, one)
    sent = scene.publish("home/oven", "office/lamp")
    one.kill()
    tree.root.kill()
    tree.root = tree.root.restart(remembers=True)
    tree.world.run(LONG)
    two = FakeGateway(tree, "one").ready()
    back = two.connect("a", **KEPT)
    assert not back.is_present
    back.subscribe("home/#", "office/#")
    tree.world.run_until(lambda: Counter(back.taken) == Counter(sent))
