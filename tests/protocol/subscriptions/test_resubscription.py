"""Subscriptions (docs/protocol.md §6.3) whose owner is lost, moves, or is not what it was named for, among
scripted nodes."""

from __future__ import annotations

from functools import partial

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import cut_of
from hbroker.protocol.results import Subscribed, SubscriptionFailed
from tests.protocol.client_world import SECOND, Node, World, holders, home


def test_an_owner_that_gave_everything_away_is_dropped() -> None:
    world = World()
    nodes = home(world)
    world.subscribe("home/kitchen/oven/#")
    world.result(Subscribed)
    oven = world.node("oven", "home/kitchen/oven")
    nodes["kitchen"].take_over(oven)
    world.run(seconds=3)
    world.cut_off(nodes["kitchen"])
    before = nodes["kitchen"].asked.total()
    world.run(seconds=20)
    assert nodes["kitchen"].asked.total() == before
    assert holders(world, "home/kitchen/oven/#") == {"oven"}


def test_a_lost_session_is_made_again_with_the_same_node() -> None:
    world = World()
    nodes = home(world)
    world.subscribe("home/kitchen/#", qos=2)
    world.result(Subscribed)
    discoveries = nodes["root"].asked["Subscribe"]
    world.cut_off(nodes["kitchen"])
    assert world.run(lambda: nodes["kitchen"].subscriptions, seconds=1)
    assert nodes["kitchen"].subscriptions["home/kitchen/#"].qos == pb.QOS_EXACTLY_ONCE
    assert nodes["root"].asked["Subscribe"] == discoveries


def test_a_subtree_that_moved_while_its_owner_was_dead_is_found_again() -> None:
    world = World()
    nodes = home(world)
    world.subscribe("home/kitchen/#")
    world.result(Subscribed)
    nodes["kitchen"].alive = False
    world.root.children.remove(nodes["kitchen"])
    heir = world.node("heir", "home/kitchen", world.root)
    world.cut_off(nodes["kitchen"])
    assert world.run(lambda: heir.subscriptions, seconds=20)
    assert not [o for o in world.results if isinstance(o, SubscriptionFailed)]


def test_whoever_lost_a_subtree_within_anothers_is_not_taken_for_the_one_that_passed_it_on() -> None:
    """§6.3: it names its own cut around the one that it lost, whose node had named it before."""
    world = World()
    outer = world.node("twice", "home", world.root)
    middle = world.node("middle", "home/hall", outer)
    inner = world.nodes[outer.address] = Node(world, "twice", "home/hall/lamp", outer.address)
    inner.besides.append(outer.subtree)
    middle.children.append(inner)
    world.subscribe("home/hall/lamp")
    assert world.result(Subscribed).owners == ("twice",)
    middle.children.remove(inner)
    world.nodes[outer.address] = outer
    world.cut_off(outer)
    assert world.run(lambda: middle.subscriptions, seconds=5)


def test_whoever_takes_a_subtree_back_is_asked_until_it_has() -> None:
    """§6.3: its owner lost it, says so, and stays responsible for something else; the parent is later."""
    world = World()
    parent = world.node("parent", "home", world.root)
    owner = world.node("owner", "home/hall", parent)
    world.subscribe("home/hall/#")
    assert world.result(Subscribed).owners == ("owner",)
    news = owner.suback(pb.Subscribe(filter="home/hall/#"), [])
    news.active = True
    news.held.clear()
    news.passed_to.append(cut_of(("home/hall", "parent", parent.address, owner.epoch + 1)))
    world.deliver(owner, news)
    world.later(partial(parent.children.remove, owner), 2 * SECOND)
    assert world.run(lambda: parent.subscriptions, seconds=8)


def test_who_has_lost_what_it_is_named_for_is_not_heard_for_it_whatever_else_it_owns() -> None:
    """§6.1: the root names it until the lease ends; only then does it name who is below (seed 3118)."""
    world = World()
    loser = world.node("loser", "home/hall/lamp", world.root)
    named = Node(world, "loser", "home", loser.address, alive=False)
    below = world.node("below", "home/kitchen")
    world.root.children.append(named)

    def take_back() -> None:
        world.root.children.remove(named)
        world.root.children.append(below)

    world.later(take_back, 4 * SECOND)
    world.subscribe("home/#", patience=20 * SECOND)
    world.run(seconds=3)
    assert not world.results
    assert holders(world, "home/#") == {"loser"}, "what it has otherwise comes meanwhile"
    assert world.result(Subscribed).owners == ("below", "loser", "root")


def test_who_stays_active_without_what_it_was_named_for_is_found_out() -> None:
    """§6.3: the link was down when it lost that, so that its news did not come."""
    world = World()
    owner = world.node("owner", "home/hall", world.root)
    owner.besides.append("home/attic")
    also = Node(world, "owner", "home/attic", owner.address, alive=False)
    world.root.children.append(also)
    world.subscribe("home/+/x")
    assert world.result(Subscribed).owners == ("owner", "root")
    owner.besides.clear()
    heir = world.node("heir", "home/attic", world.root)
    world.root.children.remove(also)
    world.cut_off(owner)
    assert world.run(lambda: heir.subscriptions, seconds=10)


def test_who_hands_back_one_subtree_after_the_other_causes_no_discovery() -> None:
    world = World()
    parent = world.node("parent", "home", world.root)
    owner = world.node("owner", "home/hall", parent)
    owner.besides.append("home/attic")
    also = Node(world, "owner", "home/attic", owner.address, alive=False)
    parent.children.append(also)
    world.subscribe("home/+/x")
    assert world.result(Subscribed).owners == ("owner", "parent")
    discoveries = world.root.asked["Subscribe"]
    for part, rest in (owner, ["home/attic"]), (also, []):
        parent.children.remove(part)
        for node, held in (owner, rest), (parent, ["home", part.subtree]):
            news = node.suback(pb.Subscribe(filter="home/+/x"), [])
            news.held[:] = held
            news.active = bool(held)
            if node is owner:
                cut = part.subtree, "parent", parent.address, part.epoch + 1
                news.passed_to.append(cut_of(cut))
            world.deliver(node, news)
    world.run(seconds=10)
    assert world.root.asked["Subscribe"] == discoveries
    world.subscribe("home/+/x")
    assert world.result(Subscribed).owners == ("parent",)


def test_clients_that_lose_one_owner_do_not_return_at_once() -> None:
    returns = []
    for seed in range(40):
        world = World(seed)
        nodes = home(world)
        world.subscribe("home/kitchen/#")
        world.result(Subscribed)
        world.run(seconds=1)
        lost_at = world.now
        world.cut_off(nodes["kitchen"])
        world.run(partial(getattr, nodes["kitchen"], "subscriptions"), seconds=5)
        returns.append(world.now - lost_at)
    assert max(returns) - min(returns) > SECOND // 20
