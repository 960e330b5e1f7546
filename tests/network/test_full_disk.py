"""A node whose disk takes nothing, or does not answer: what it promised holds, and it goes on (§5.10)."""

from __future__ import annotations

import pytest

from hbroker.config import NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.outcome import Subscribed
from hbroker.sim.network import CLEAR, ClientHost, NodeHost
from hbroker.sim.network.files import NodeFiles
from tests.network.networks import Tree
from tests.network.test_gathering import Stream

SECOND = timers.SECOND
TOPIC = "home/x"
TEN_MINUTES = 600 * SECOND


def has_subscribed(client: ClientHost) -> bool:
    return any(isinstance(outcome, Subscribed) for outcome in client.outcomes)


@pytest.mark.parametrize("full_s", [0, 10, 30])
def test_who_was_connected_before_the_disk_was_full_loses_nothing(full_s: int) -> None:
    """The node is killed then, and its next run waits for them."""
    stream = Stream(4, "kitchen", CLEAR)
    if full_s:
        stream.victim.files.disk.room = 0
        late = stream.tree.client()
        late.subscribe("home/kitchen/#")  # There is something to note.
    stream.publish_for(full_s * SECOND)
    stream.await_all()
    stream.victim.kill()
    stream.publish_for(SECOND // 2)
    stream.victim.files.mend()
    stream.victim.restart(remembers=True)
    stream.publish_for(20 * SECOND)
    stream.await_all()
    assert stream.numbers() == list(range(stream.published))


def test_who_subscribes_at_a_node_whose_sync_hangs_is_told_so_soon() -> None:
    tree = Tree.grow(5)
    settings = NodeSettings("home", "home", tree.world.new_address(), root=tree.root.address)
    node = NodeHost(tree.world, settings, NodeFiles(tree.world, settings, sync_us=TEN_MINUTES))
    tree.world.run_until(lambda: tree.serves(node))
    client = tree.client()
    began = tree.world.now
    client.subscribe(TOPIC, qos=1)
    tree.world.run_until(lambda: has_subscribed(client))
    assert tree.world.now - began < 3 * SECOND


def a_full_node(tree: Tree) -> NodeHost:
    """It has just taken over `home`, with one subscription."""
    early = tree.client()
    early.subscribe("home/#", qos=1)
    tree.world.run_until(lambda: has_subscribed(early))
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
    assert has_subscribed(late)


def test_it_can_leave() -> None:
    tree = Tree.grow(5)
    node = a_full_node(tree)
    tree.world.run(5 * SECOND)
    node.leave()
    began = tree.world.now
    tree.world.run_until(lambda: tree.root.owns(TOPIC))
    assert tree.world.now - began < 5 * SECOND
