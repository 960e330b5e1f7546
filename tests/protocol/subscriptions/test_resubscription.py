"""Subscriptions (docs/protocol.md §6.3) whose owner is lost, changes, or no longer holds the subtree for
which it was named, among scripted nodes."""

from __future__ import annotations

from functools import partial

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import cut_of
from hbroker.protocol.results import Subscribed, SubscriptionFailed
from tests.protocol.client_world import SECOND, Node, World, subscribed, subscribed_nodes


def test_a_node_that_delegated_all_matching_topics_is_not_asked_again() -> None:
    world, nodes, _ = subscribed("home/kitchen/oven/#")
    oven = world.node("oven", "home/kitchen/oven")
    nodes["kitchen"].install_state(oven)
    world.run(seconds=3)
    world.cut_off(nodes["kitchen"])
    before = nodes["kitchen"].asked.total()
    world.run(seconds=20)
    assert nodes["kitchen"].asked.total() == before
    assert subscribed_nodes(world, "home/kitchen/oven/#") == {"oven"}


def test_a_subscription_is_made_again_at_the_same_node_after_its_session_was_lost() -> None:
    world, nodes, _ = subscribed("home/kitchen/#", qos=2)
    discoveries = nodes["root"].asked["Subscribe"]
    world.cut_off(nodes["kitchen"])
    assert world.run(lambda: nodes["kitchen"].subscriptions, seconds=1)
    assert nodes["kitchen"].subscriptions["home/kitchen/#"].qos == pb.QOS_EXACTLY_ONCE
    assert nodes["root"].asked["Subscribe"] == discoveries


def test_a_subscription_follows_a_subtree_whose_owner_died() -> None:
    world, nodes, _ = subscribed("home/kitchen/#")
    nodes["kitchen"].alive = False
    world.root.children.remove(nodes["kitchen"])
    successor = world.node("heir", "home/kitchen", world.root)
    world.cut_off(nodes["kitchen"])
    assert world.run(lambda: successor.subscriptions, seconds=20)
    assert not [o for o in world.results if isinstance(o, SubscriptionFailed)]


def test_a_node_that_lost_an_inner_subtree_does_not_answer_for_the_node_in_between() -> None:
    """§6.3: the node names its own cut around the subtree that it lost. The node of that cut had named it
    before."""
    world = World()
    outer = world.node("twice", "home", world.root)
    middle = world.node("middle", "home/hall", outer)
    inner = world.nodes[outer.address] = Node(world, "twice", "home/hall/lamp", outer.address)
    inner.other_subtrees.append(outer.subtree)
    middle.children.append(inner)
    world.subscribe("home/hall/lamp")
    assert world.result(Subscribed).owners == ("twice",)
    middle.children.remove(inner)
    world.nodes[outer.address] = outer
    world.cut_off(outer)
    assert world.run(lambda: middle.subscriptions, seconds=5)


def test_a_parent_is_asked_until_it_has_taken_back_the_subtree() -> None:
    """§6.3: the owner lost the subtree, reports it, and stays responsible for other topics. The parent
    takes the subtree back later."""
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


def test_an_answer_of_a_node_that_lost_the_delegated_subtree_does_not_stand_for_it() -> None:
    """§6.1: the root names the node until the lease ends. Only then does the root name the node below
    (seed 3118)."""
    world = World()
    loser = world.node("loser", "home/hall/lamp", world.root)
    named = Node(world, "loser", "home", loser.address, alive=False)
    below = world.node("below", "home/kitchen")
    world.root.children.append(named)

    def take_back() -> None:
        world.root.children.remove(named)
        world.root.children.append(below)

    world.later(take_back, 4 * SECOND)
    world.subscribe("home/#", timeout=20 * SECOND)
    world.run(seconds=3)
    assert not world.results
    assert subscribed_nodes(world, "home/#") == {"loser"}, "what it has otherwise comes meanwhile"
    assert world.result(Subscribed).owners == ("below", "loser", "root")


def test_a_node_that_lost_one_of_its_subtrees_while_the_link_was_down_is_noticed() -> None:
    """§6.3: the unsolicited SUBACK was lost with the link."""
    world = World()
    owner = world.node("owner", "home/hall", world.root)
    owner.other_subtrees.append("home/attic")
    also = Node(world, "owner", "home/attic", owner.address, alive=False)
    world.root.children.append(also)
    world.subscribe("home/+/x")
    assert world.result(Subscribed).owners == ("owner", "root")
    owner.other_subtrees.clear()
    successor = world.node("heir", "home/attic", world.root)
    world.root.children.remove(also)
    world.cut_off(owner)
    assert world.run(lambda: successor.subscriptions, seconds=10)


def test_subtrees_that_are_handed_back_one_after_the_other_cause_no_discovery() -> None:
    world = World()
    parent = world.node("parent", "home", world.root)
    owner = world.node("owner", "home/hall", parent)
    owner.other_subtrees.append("home/attic")
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


def test_clients_that_lose_the_same_owner_return_at_different_times() -> None:
    returns = []
    for seed in range(40):
        world, nodes, _ = subscribed("home/kitchen/#", seed=seed)
        world.run(seconds=1)
        lost_at = world.now
        world.cut_off(nodes["kitchen"])
        world.run(partial(getattr, nodes["kitchen"], "subscriptions"), seconds=5)
        returns.append(world.now - lost_at)
    assert max(returns) - min(returns) > SECOND // 20
