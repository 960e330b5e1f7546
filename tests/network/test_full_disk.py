"""A node whose disk is full (docs/protocol.md §5.10) takes subscribers, and can leave."""

from __future__ import annotations

from hbroker.config import NodeSettings
from hbroker.protocol.outcome import Subscribed
from hbroker.sim.network import NodeHost
from hbroker.sim.network.files import NodeFiles
from tests.network.networks import Tree

SECOND = 1_000_000
TOPIC = "home/x"


def a_full_node(tree: Tree) -> NodeHost:
    """It has just taken over `home`, with one subscription."""
    early = tree.client()
    early.subscribe("home/#", qos=1)
    tree.world.run_until(lambda: any(isinstance(o, Subscribed) for o in early.outcomes))
    settings = NodeSettings("home", "home", tree.world.new_address(), root=tree.root.address)
    files = NodeFiles(tree.world, settings)
    files.disk.room = 0
    node = NodeHost(tree.world, settings, files)
    tree.world.run_until(lambda: tree.serves(node))
    assert node.owns(TOPIC)
    return node


def test_it_takes_subscribers() -> None:
    tree = Tree.grow(5)
    a_full_node(tree)
    late = tree.client()
    late.subscribe("home/x", qos=1)
    tree.world.run(30 * SECOND)
    assert any(isinstance(o, Subscribed) for o in late.outcomes)


def test_it_can_leave() -> None:
    tree = Tree.grow(5)
    node = a_full_node(tree)
    tree.world.run(5 * SECOND)
    node.leave()
    began = tree.world.now
    tree.world.run_until(lambda: tree.root.owns(TOPIC))
    assert tree.world.now - began < 5 * SECOND
