"""Subtrees move while they are in use (§§5.4, 5.7): no message is lost or duplicated, and no topic has two
owners."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.events import PolicyLowered, Refused
from hbroker.protocol.results import Published
from hbroker.protocol.sessions.options import SessionOptions, session_id
from hbroker.sim.network import ClientHost, Datagram, Faults, Host, NodeHost
from hbroker.sim.network.invariants import Ownership, Violation
from tests.network.networks import Tree

MILLISECOND = timers.SECOND // 1_000
SESSION_OPTIONS = SessionOptions("lamp", session_id("lamp"), expiry_s=300)
LOSSY = Faults(loss=0.05, delay_us=2_000, jitter_us=1_000, reordering=0.05, duplication=0.05)


class Traffic:
    """A publisher and a subscriber of one topic, and its owners, which are checked at every step."""

    def __init__(self, tree: Tree, topic: str, qos: int, *topics: str) -> None:
        self.tree, self.topic, self.qos = tree, topic, qos
        self.violations: list[Violation] = []
        self.topics = (topic, *topics)
        self._ownership = Ownership(tree.world, self.topics)
        self.subscriber: ClientHost = tree.client("subscriber")
        self.subscriber.subscribe(f"{topic.partition('/')[0]}/#", qos=qos)
        tree.world.run_until(lambda: bool(self.subscriber.results))
        self.publisher: ClientHost = tree.client("publisher")
        self.arrivals: list[int] = []
        """The time at which each message arrived, in microseconds."""
        tree.world.on_acted = self._acted
        self.sent = 0

    def publish(self, messages: int, every: int = 5 * MILLISECOND) -> None:
        """Publishes a message each `every` microseconds."""
        for _ in range(messages):
            self.sent += 1
            self.publisher.publish(self.topic, str(self.sent).encode(), qos=self.qos)
            self.tree.world.run(every)

    def settle(self) -> None:
        """Waits until all messages are acknowledged, and checks that they arrived as guaranteed."""
        world = self.tree.world
        world.run_until(lambda: self.acknowledged == self.sent)
        world.run(timers.SECOND)
        assert not self.violations
        payloads = [m.payload for m in self.subscriber.messages if m.topic == self.topic]
        expected = [str(number).encode() for number in range(1, self.sent + 1)]
        if self.qos == 2:
            assert payloads == expected, "exactly once, and in order"
        else:
            assert list(dict.fromkeys(payloads)) == expected, "at least once, and the first time in order"

    @property
    def acknowledged(self) -> int:
        """The number of messages that were distributed."""
        return sum(isinstance(o, Published) and o.reason == 0 for o in self.publisher.results)

    @property
    def longest_gap(self) -> int:
        """The longest time between two arrivals, in microseconds."""
        return max(later - earlier for earlier, later in pairwise(self.arrivals))

    def _acted(self, host: Host) -> None:
        if isinstance(host, NodeHost):
            self.violations += self._ownership.check(host)
        elif host is self.subscriber:
            new = len(self.subscriber.messages) - len(self.arrivals)
            self.arrivals += [self.tree.world.now] * new


def publish_between(traffic: Traffic, steps: Iterator[None]) -> None:
    """Takes one step after another, and publishes before, between and after the steps."""
    traffic.publish(50)
    for _ in steps:
        traffic.publish(50)
    traffic.settle()


def between(tree: Tree, subtree: str, nodes: list[NodeHost], times: int) -> Iterator[None]:
    for turn in range(times):
        tree.move(subtree, nodes[turn % 2], nodes[1 - turn % 2])
        yield


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("faults", [Faults(), LOSSY], ids=["clear", "lossy"])
def test_a_subtree_moves_back_and_forth_under_traffic(qos: int, faults: Faults) -> None:
    tree = Tree.grow(11 + qos, ["home/kitchen", "home/bedroom"], faults)
    traffic = Traffic(tree, "home/kitchen/oven", qos)
    nodes = [tree.nodes["home/kitchen"], tree.nodes["home/bedroom"]]
    publish_between(traffic, between(tree, "home/kitchen", nodes, 4))


def test_publishers_wait_less_than_a_quarter_second_for_a_handover() -> None:
    tree = Tree.grow(17, ["home/kitchen", "home/bedroom"])
    traffic = Traffic(tree, "home/kitchen/oven", 2)
    nodes = [tree.nodes["home/kitchen"], tree.nodes["home/bedroom"]]
    traffic.publish(20)
    for turn in range(2):
        tree.move("home/kitchen", nodes[turn], nodes[1 - turn])
        traffic.publish(20)
    traffic.settle()
    assert traffic.longest_gap < 250 * MILLISECOND


@pytest.mark.parametrize("faults", [Faults(), LOSSY], ids=["clear", "lossy"])
def test_the_cuts_of_a_leaving_parent_serve_on(faults: Faults) -> None:
    tree = Tree.grow(3, ["home", "home/kitchen", "home/kitchen/oven"], faults)
    traffic = Traffic(tree, "home/kitchen/lamp", 2, "home/x", "home/kitchen/oven/x")
    kitchen = tree.nodes["home/kitchen"]
    refused = kitchen.engine.counters().get("drop.handover", 0)

    def steps() -> Iterator[None]:
        tree.leave(tree.nodes["home"])
        yield
        tree.world.run(2 * timers.LEASE)
        yield

    publish_between(traffic, steps())
    assert kitchen.engine.counters().get("drop.handover", 0) == refused, "it was never disturbed"
    cuts = {d.subtree for d in tree.root.control.jurisdiction.delegations if "$SYS" not in d.subtree}
    assert cuts == {"home/kitchen"}, "its parent is the root now"


@pytest.mark.parametrize("policy", LeasePolicy)
@pytest.mark.parametrize("faults", [Faults(), LOSSY], ids=["clear", "lossy"])
def test_a_parent_that_joins_after_its_children_takes_its_place_above_them(
    policy: LeasePolicy, faults: Faults
) -> None:
    tree = Tree.grow(5, [], faults)
    for subtree in ("home/kitchen", "home/bedroom"):
        tree.join(subtree, policy=policy)
    traffic = Traffic(tree, "home/kitchen/oven", 2, "home/x", "home/bedroom/x")

    def steps() -> Iterator[None]:
        yield
        tree.join("home", policy=policy)
        yield
        tree.world.run(2 * timers.LEASE)
        yield

    publish_between(traffic, steps())
    home = tree.nodes["home"]
    links = {d.subtree: d.link for d in home.control.jurisdiction.delegations}
    assert set(links) == {"home/kitchen", "home/bedroom"}
    assert all(links.values()), "they renew there"
    assert not any(isinstance(n, Refused) for n in tree.nodes["home/kitchen"].events)


def test_a_late_parent_keeps_no_subscription_that_only_its_cuts_can_match() -> None:
    tree = Tree.grow(7, ["home/kitchen"])
    subscriber = tree.client("subscriber")
    subscriber.subscribe("+/kitchen/oven", qos=1)
    subscriber.subscribe("home/#", qos=1)
    tree.world.run_until(lambda: len(subscriber.results) == 2)
    home = tree.join("home")
    tree.world.run(timers.SECOND)
    assert {subscription.filter for subscription in home.control.subscription_store} == {"home/#"}


def test_a_parent_under_fence_that_joins_above_children_under_serve_puts_them_under_fence() -> None:
    tree = Tree.grow(6)
    kitchen = tree.join("home/kitchen", policy=LeasePolicy.SERVE)
    oven = tree.join("home/kitchen/oven", policy=LeasePolicy.SERVE)
    traffic = Traffic(tree, "home/kitchen/oven/x", 2, "home/x", "home/kitchen/x")
    home = tree.join("home", wait=False)
    tree.world.run_until(lambda: tree.serves(home))
    assert PolicyLowered("home/kitchen", "root") in kitchen.events
    assert PolicyLowered("home/kitchen/oven", "kitchen") in oven.events
    traffic.publish(20)
    traffic.settle()
    tree.world.path = lambda d: None if kitchen.address in (d.source, d.destination) else Faults()
    tree.world.run(3 * timers.LEASE)
    assert not traffic.violations
    assert home.engine.owns(tree.world.now, "home/kitchen/x"), "it stopped, and its parent took back"


def test_the_children_of_a_late_parent_serve_on_when_it_dies() -> None:
    tree = Tree.grow(8, ["home/kitchen"])
    traffic = Traffic(tree, "home/kitchen/oven", 2, "home/x")
    home = tree.join("home")
    home.kill()
    tree.world.run(3 * timers.LEASE)
    traffic.publish(20)
    traffic.settle()
    assert tree.root.engine.owns(tree.world.now, "home/x")
    assert tree.nodes["home/kitchen"].engine.owns(tree.world.now, "home/kitchen/oven")


@pytest.mark.parametrize("at_ms", range(0, 16, 1))
@pytest.mark.parametrize("kind", ["crash", "cut"])
def test_a_crash_or_a_cut_path_while_a_parent_joins_late_makes_no_second_owner(kind: str, at_ms: int) -> None:
    tree = Tree.grow(9, ["home/kitchen"], Faults(delay_us=400))
    traffic = Traffic(tree, "home/kitchen/oven", 2, "home/x")
    world = tree.world
    home = tree.join("home", wait=False)
    world.run(at_ms * MILLISECOND)
    if kind == "crash":
        home.kill()
        world.run(timers.SECOND)
        home.restart(remembers=True)
    else:
        ends = {home.address, tree.root.address}
        world.path = lambda d: None if {d.source, d.destination} == ends else Faults(delay_us=400)
        world.run(20 * timers.SECOND)
        world.path = None
    traffic.publish(30, timers.SECOND)
    world.run(2 * timers.LEASE)
    traffic.settle()
    owners = {t: [n for n in (tree.root, *living(tree)) if n.engine.owns(world.now, t)] for t in ("home/x",)}
    assert [host.settings.name for host in owners["home/x"]] == ["home"]


def kitchen_listener(tree: Tree) -> ClientHost:
    """A client with a subscription at the kitchen alone."""
    listener = tree.client("listener")
    listener.subscribe("home/kitchen/#", qos=1)
    tree.world.run_until(lambda: bool(listener.results))
    return listener


def test_the_new_owner_finds_a_subscriber_that_has_moved() -> None:
    tree = Tree.grow(12, ["home/kitchen"])
    world, listener = tree.world, kitchen_listener(tree)
    former = listener.address
    listener.world.move(listener)
    world.run(2 * timers.KEEP_ALIVE)
    before = world.sent_bytes[tree.root.address, former]
    tree.leave(tree.nodes["home/kitchen"])
    tree.client().publish("home/kitchen/oven", b"hot", qos=1)
    world.run_until(lambda: bool(listener.messages), within=timers.SECOND)
    assert world.sent_bytes[tree.root.address, former] == before


def test_a_subscriber_that_the_new_owner_cannot_reach_asks_it() -> None:
    tree = Tree.grow(13, ["home/kitchen"])
    listener = kitchen_listener(tree)
    there = tree.root.address, listener.address
    began = tree.world.sent_bytes[there[::-1]]

    def path(datagram: Datagram) -> Faults | None:
        has_asked = tree.world.sent_bytes[there[::-1]] > began
        return None if (datagram.source, datagram.destination) == there and not has_asked else Faults()

    tree.world.path = path
    tree.leave(tree.nodes["home/kitchen"])
    tree.client().publish("home/kitchen/oven", b"hot", qos=1)
    tree.world.run_until(lambda: bool(listener.messages), within=3 * timers.SECOND)


def test_a_claim_within_a_larger_subtree_of_the_same_node_waits_until_that_is_gone() -> None:
    tree = Tree.grow(14, ["home", "home/kitchen"])
    home, kitchen = tree.nodes["home"], tree.nodes["home/kitchen"]
    traffic = Traffic(tree, "home/kitchen/oven", 2, "home/x")
    tree.move("home", home, kitchen)
    for _ in range(3 * timers.LEASE // timers.SECOND):
        traffic.publish(1, timers.SECOND)
        assert kitchen.engine.owns(tree.world.now, "home/kitchen/oven")
    assert kitchen.control.is_serving
    tree.move("home", kitchen, home)
    tree.world.run_until(lambda: kitchen.is_serving_subtree("home/kitchen"))
    assert home.is_serving_subtree("home")
    traffic.publish(10)
    traffic.settle()


def test_a_child_that_leaves_takes_no_subscription_from_another_handover() -> None:
    tree = Tree.grow(15, ["home/bedroom"])
    world, subscriber = tree.world, tree.client("subscriber")
    subscriber.subscribe("home/kitchen", qos=1)
    world.run_until(lambda: bool(subscriber.results))
    subscriber.stop()  # so a message stays open, and the handover waits for it (§5.4)
    tree.client().publish("home/kitchen", b"hot", qos=1)
    world.run(100 * MILLISECOND)
    kitchen = tree.join("home/kitchen", wait=False)
    world.run(50 * MILLISECOND)
    assert not kitchen.is_serving_subtree("home/kitchen")
    tree.nodes["home/bedroom"].leave()
    world.run_until(lambda: kitchen.is_serving_subtree("home/kitchen"))
    assert {subscription.filter for subscription in kitchen.control.subscription_store} == {"home/kitchen"}


def test_a_child_whose_subtree_goes_along_ends_no_subscription() -> None:
    tree = Tree.grow(16, ["home/bedroom"])
    world, subscriber = tree.world, tree.client("subscriber")
    subscriber.subscribe("home/#", qos=1)
    world.run_until(lambda: bool(subscriber.results))
    subscriber.stop()  # so a message stays open, and the child's handover waits for it (§5.4)
    tree.client().publish("home/bedroom/lamp", b"on", qos=1)
    world.run(100 * MILLISECOND)
    tree.nodes["home/bedroom"].leave()
    world.run(10 * MILLISECOND)
    home = tree.join("home", wait=False)
    world.run_until(lambda: home.is_serving_subtree("home"))
    assert home.owns("home/bedroom/lamp")
    assert {subscription.filter for subscription in home.control.subscription_store} == {"home/#"}


def test_a_node_that_claims_a_subtree_around_its_parents_keeps_its_own_cuts() -> None:
    """`oven` has its subtree from `kitchen`. The node that hands over `home` knows nothing of `door`."""
    door = "home/kitchen/oven/door"
    tree = Tree.grow(18, ["home", "home/kitchen", "home/kitchen/oven", door])
    traffic = Traffic(tree, f"{door}/x", 2, "home/x", "home/kitchen/x", "home/kitchen/oven/x")
    traffic.publish(10)
    tree.move("home", tree.nodes["home"], tree.nodes["home/kitchen/oven"])
    for _ in range(2 * timers.LEASE // timers.SECOND):
        traffic.publish(1, timers.SECOND)
        assert tree.nodes[door].owns(traffic.topic)
    assert tree.nodes["home/kitchen/oven"].owns("home/kitchen/oven/x")
    traffic.settle()


def test_a_smaller_subtree_of_a_node_stays_with_it_when_the_one_in_between_moves() -> None:
    """`oven` owns everything around its own subtree. The next holder of `kitchen` becomes its parent."""
    tree = Tree.grow(19, ["home", "home/kitchen", "home/kitchen/oven", "home/bedroom"])
    home, kitchen, oven, bedroom = tree.nodes.values()
    traffic = Traffic(tree, "home/kitchen/oven/x", 2, "home/x", "home/kitchen/x")
    traffic.publish(10)
    tree.move("home", home, oven)
    traffic.publish(10)
    tree.move("home/kitchen", kitchen, bedroom)
    traffic.publish(10)
    tree.world.run_until(lambda: oven.is_serving_subtree("home/kitchen/oven"))
    assert bedroom.owns("home/kitchen/x")
    traffic.publish(10)
    traffic.settle()


def test_a_node_joins_between_two_subtrees_of_another_node() -> None:
    tree = Tree.grow(20, ["home", "home/kitchen/oven"])
    home, oven = tree.nodes.values()
    traffic = Traffic(tree, "home/kitchen/oven/x", 2, "home/x", "home/kitchen/x")
    tree.move("home", home, oven)
    traffic.publish(10)
    assert oven.control.status(tree.world.now)["epoch"], "it owns what it is there for as a part of `home`"
    kitchen = tree.join("home/kitchen")
    traffic.publish(10)
    tree.world.run_until(lambda: oven.is_serving_subtree("home/kitchen/oven"))
    assert kitchen.owns("home/kitchen/x")
    assert oven.owns("home/x")
    traffic.publish(10)
    traffic.settle()


class NestedSubtrees:
    """`bulb` has its subtree from `oven`, whose own lies in `home`. Then `bulb` gets `home`, too.

    In the smaller subtree it holds queued messages of one session, unacknowledged messages of another, and a
    retained message.
    """

    TOPIC = "home/kitchen/oven/bulb/x"

    def __init__(self, seed: int) -> None:
        self.tree = tree = Tree.grow(seed, ["home", "home/kitchen/oven", "home/kitchen/oven/bulb"])
        home, _, self.bulb = tree.nodes.values()
        tree.move("home", home, self.bulb)
        self.offline, self.stopped = tree.client(session_options=SESSION_OPTIONS), tree.client("stopped")
        for client in (self.offline, self.stopped):
            client.subscribe("home/#", qos=2)
        tree.world.run_until(lambda: bool(self.offline.results and self.stopped.results))
        self.offline.leave()
        self.publisher = tree.client("publisher")
        self.sent = 0
        self.publish(20)
        tree.world.run_until(lambda: self.acknowledged == 20)
        self.offline.kill()
        self.refused = self.count("drop.handover")
        self.stopped.stop()
        self.publish(5)
        assert self.acknowledged == 20

    def publish(self, messages: int) -> None:
        """Publishes messages, the last of them retained."""
        for number in range(1, messages + 1):
            self.sent += 1
            self.publisher.publish(self.TOPIC, str(self.sent).encode(), qos=2, retain=number == messages)
            self.tree.world.run(MILLISECOND)

    @property
    def acknowledged(self) -> int:
        return sum(isinstance(o, Published) and o.reason == 0 for o in self.publisher.results)

    def count(self, name: str) -> int:
        return self.bulb.engine.counters().get(name, 0)

    def assert_nothing_moved(self) -> None:
        """Checks that all of this is at `bulb` alone, and arrives in order before the messages that
        follow."""
        assert (self.count("drop.handover"), self.count("drop.moved")) == (self.refused, 0)
        has_some = [node for node in (self.tree.root, *living(self.tree)) if node.engine.retained("home", [])]
        assert has_some == [self.bulb]
        self.stopped.resume()
        self.publish(20)
        back = self.tree.client(session_options=SESSION_OPTIONS)
        back.subscribe("home/#", qos=2)
        self.tree.world.run_until(lambda: len(payloads_of(self.stopped)) == len(payloads_of(back)) == 45)
        assert payloads_of(self.stopped) == payloads_of(back) == [b"%d" % n for n in range(1, 46)]
        assert self.acknowledged == 45


def payloads_of(client: ClientHost) -> list[bytes]:
    """The payloads of the received messages, without retained ones."""
    return [message.payload for message in client.messages if not message.retained]


def test_messages_of_a_smaller_subtree_stay_when_the_larger_one_is_handed_back() -> None:
    nested = NestedSubtrees(21)
    nested.tree.order(nested.bulb, pb.ORDER_KIND_HAND_BACK, "home")
    assert nested.tree.root.owns("home/x")
    nested.assert_nothing_moved()


def test_messages_of_a_smaller_subtree_stay_when_the_subtree_in_between_is_delegated() -> None:
    nested = NestedSubtrees(22)
    kitchen = nested.tree.join("home/kitchen")
    assert kitchen.owns("home/kitchen/x")
    nested.assert_nothing_moved()


@pytest.mark.parametrize("at_ms", [0, 3, 10, 20, 50, 100])
@pytest.mark.parametrize("how", ["hands back", "delegates"])
def test_a_node_that_gives_a_subtree_away_keeps_its_smaller_one_although_the_part_in_between_comes_back(
    how: str, at_ms: int
) -> None:
    """`kitchen` lies between the two subtrees of `oven`. It hands back while `oven` gives away the larger
    one."""
    tree = Tree.grow(23, ["house", "house/home/kitchen", "house/home/kitchen/oven"], Faults(delay_us=1_000))
    house, kitchen, oven = tree.nodes.values()
    tree.move("house", house, oven)
    traffic = Traffic(tree, "house/home/kitchen/oven/x", 2, "house/home/kitchen/x", "house/home/x")
    unread = tree.client("unread")
    for topic in traffic.topics[1:]:
        unread.subscribe(topic, qos=2)
    tree.world.run_until(lambda: len(unread.results) == 2)
    unread.stop()  # so messages stay open, and both handovers wait for them (§5.4)
    for topic in traffic.topics[1:]:
        tree.client().publish(topic, b"hot", qos=2)
    traffic.publish(20)
    tree.order(kitchen, pb.ORDER_KIND_HAND_BACK, "house/home/kitchen", wait=False)
    tree.world.run(at_ms * MILLISECOND)
    if how == "delegates":
        tree.join("house/home", wait=False)
    else:
        tree.order(oven, pb.ORDER_KIND_HAND_BACK, "house", wait=False)
    for _ in range(2 * timers.LEASE // timers.SECOND):
        traffic.publish(1, timers.SECOND)
    traffic.settle()
    new_owner = tree.nodes["house/home"] if how == "delegates" else tree.root
    owners = {t: [n for n in (tree.root, *living(tree)) if n.owns(t)] for t in traffic.topics}
    assert owners == {topic: [oven if "oven" in topic else new_owner] for topic in traffic.topics}


def living(tree: Tree) -> list[NodeHost]:
    """The running nodes below the root."""
    return [h for h in tree.world.hosts.values() if isinstance(h, NodeHost) and h is not tree.root]


@pytest.mark.parametrize("at_ms", range(0, 16, 1))
def test_a_crash_of_a_leaving_parent_makes_no_second_owner(at_ms: int) -> None:
    tree = Tree.grow(10, ["home", "home/kitchen"], Faults(delay_us=400))
    traffic = Traffic(tree, "home/kitchen/oven", 2, "home/x")
    world = tree.world
    home = tree.nodes["home"]
    home.control.leave(world.now)
    world.drive(home)
    world.run(at_ms * MILLISECOND)
    home.kill()
    world.run(3 * timers.LEASE)
    traffic.publish(20)
    traffic.settle()
    assert tree.root.engine.owns(world.now, "home/x")
    assert tree.nodes["home/kitchen"].engine.owns(world.now, "home/kitchen/oven")


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_of_an_inner_subtree_of_a_restarted_node_does_not_move_with_the_outer_subtree(
    seed: int,
) -> None:
    """One node holds `a`, another `a/c`, the first one also `a/c/b`, and a third `a/c/b/d`. After a
    restart the first node has `a`, and learns of `a/c`, before it has `a/c/b` again."""
    tree = Tree.grow(seed, ["a", "a/c"])
    outer = tree.nodes["a"]
    tree.order(outer, pb.ORDER_KIND_CLAIM, "a/c/b")
    inmost = tree.join("a/c/b/d")
    tree.world.run(timers.SECOND)
    outer.kill()
    outer = outer.restart(remembers=True)
    end = tree.world.now + timers.LEASE
    while tree.world.now < end:
        tree.world.step()
        assert not (inmost.owns("a/c/b/d/t") and outer.owns("a/c/b/d/t"))
    assert outer.is_serving_subtree("a/c/b")
    assert inmost.owns("a/c/b/d/t")
