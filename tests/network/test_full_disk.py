"""A node whose disk is full or does not answer keeps its guarantees and goes on (§5.10)."""

from __future__ import annotations

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings
from hbroker.protocol import storage, timers
from hbroker.protocol.admin.requests import UNNOTED
from hbroker.protocol.results import Subscribed
from hbroker.sim.network import CLEAR, ClientHost, NodeHost
from hbroker.sim.network.operators import Operator, Step
from hbroker.sim.network.storage.files import NodeFiles
from tests.network.moving.test_recovery import Stream
from tests.network.networks import Tree

SECOND = timers.SECOND
TOPIC = "home/x"
TEN_MINUTES = 600 * SECOND


def has_subscribed(client: ClientHost) -> bool:
    return any(isinstance(result, Subscribed) for result in client.results)


@pytest.mark.parametrize("full_s", [0, 10, 30])
def test_a_subscriber_from_before_the_disk_was_full_loses_no_message(full_s: int) -> None:
    """Then the node is killed, and its next run waits for the subscriber."""
    stream = Stream(4, "kitchen", CLEAR)
    if full_s:
        stream.victim.files.disk.free_bytes = 0
        late = stream.tree.client()
        late.subscribe("home/kitchen/#")  # so there is something to note
    stream.publish_for(full_s * SECOND)
    stream.await_all()
    stream.victim.kill()
    stream.publish_for(SECOND // 2)
    stream.victim.files.mend()
    stream.victim.restart(remembers=True)
    stream.publish_for(20 * SECOND)
    stream.await_all()
    assert stream.numbers() == list(range(stream.published))


def test_a_subscriber_gets_its_suback_soon_although_the_sync_hangs() -> None:
    tree = Tree.grow(5)
    settings = NodeSettings("home", "home", tree.world.new_address(), root=tree.root.address)
    node = NodeHost(tree.world, settings, NodeFiles(tree.world, settings, sync_us=TEN_MINUTES))
    tree.world.run_until(lambda: tree.serves(node))
    client = tree.client()
    began = tree.world.now
    client.subscribe(TOPIC, qos=1)
    tree.world.run_until(lambda: has_subscribed(client))
    assert tree.world.now - began < 3 * SECOND


def node_with_full_disk(tree: Tree) -> NodeHost:
    """A node with a full disk that has just taken over `home`, with one subscription."""
    early = tree.client()
    early.subscribe("home/#", qos=1)
    tree.world.run_until(lambda: has_subscribed(early))
    settings = NodeSettings("home", "home", tree.world.new_address(), root=tree.root.address)
    files = NodeFiles(tree.world, settings)
    files.disk.free_bytes = 0
    node = NodeHost(tree.world, settings, files)
    tree.world.run_until(lambda: tree.serves(node))
    assert node.owns(TOPIC)
    return node


def test_a_node_with_a_full_disk_accepts_subscriptions() -> None:
    tree = Tree.grow(5)
    node_with_full_disk(tree)
    late = tree.client()
    late.subscribe("home/x", qos=1)
    tree.world.run(30 * SECOND)
    assert has_subscribed(late)


def test_a_node_with_a_full_disk_can_leave() -> None:
    tree = Tree.grow(5)
    node = node_with_full_disk(tree)
    tree.world.run(5 * SECOND)
    node.leave()
    began = tree.world.now
    tree.world.run_until(lambda: tree.root.owns(TOPIC))
    assert tree.world.now - began < 5 * SECOND


@pytest.mark.parametrize("seed", range(6))
def test_an_order_that_was_answered_as_done_survives_a_loss_of_power(seed: int) -> None:
    """Otherwise two nodes would claim a subtree that was handed back, or none a subtree that was claimed."""
    tree = Tree.grow(seed)
    settings = NodeSettings("home", "home", tree.world.new_address(), root=tree.root.address)
    files = NodeFiles(tree.world, settings, sync_us=SECOND // 2)
    node = NodeHost(tree.world, settings, files)
    tree.world.run_until(lambda: tree.serves(node))
    tree.world.run(2 * SECOND)
    for kind, subtree, claims in (
        (pb.ORDER_KIND_HAND_BACK, "home", []),
        (pb.ORDER_KIND_CLAIM, "garden", ["garden"]),
    ):
        tree.order(node, kind, subtree)
        node.kill(with_machine=True)
        node = node.restart(remembers=True)
        assert list(node.claims) == claims
        tree.world.run(2 * SECOND)


def test_the_answer_to_an_order_says_that_the_disk_is_full() -> None:
    tree = Tree.grow(5)
    node = node_with_full_disk(tree)
    operator = Operator(tree.world, [Step(node, pb.ORDER_KIND_HAND_BACK, "home")])
    tree.world.run_until(lambda: tree.root.owns(TOPIC))
    tree.world.run(2 * SECOND)
    assert operator.answer is not None
    assert (operator.has_ended, operator.answer.done, operator.answer.text) == (False, False, UNNOTED)
    node.files.mend()
    tree.world.run_until(lambda: operator.has_ended)
    assert operator.answer.done


def is_done(transfer: pb.Transfer) -> bool:
    return transfer.subtree == "home" and transfer.phase == pb.TRANSFER_PHASE_DONE


def test_a_done_that_could_not_wait_for_the_disk_is_sent_with_the_next_renewal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then the parent keeps the state that moved."""
    tree = Tree.grow(5)
    told = tree.watch_for(is_done)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "MOST_WAITING", 0)
        node = tree.join("home")
        tree.world.run(SECOND)
        assert node.owns(TOPIC)
        assert not told
    tree.world.run(timers.LEASE)
    assert len(told) == 1


def test_a_child_hands_back_again_if_the_parents_done_could_not_wait_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = Tree.grow(5, ["home"])
    node, told = tree.nodes["home"], tree.watch_for(is_done)
    with monkeypatch.context() as patch:
        patch.setattr(storage, "MOST_WAITING", 0)
        tree.order(node, pb.ORDER_KIND_HAND_BACK, "home", wait=False)
        tree.world.run_until(lambda: tree.root.owns(TOPIC))
        tree.world.run(SECOND)
        assert not told
        counters = tree.root.control.status(tree.world.now)["counters"]
        assert isinstance(counters, dict)
        assert counters["dones_not_sent"] >= 1
    tree.world.run(2 * timers.LEASE)
    assert list(node.claims) == []
    assert tree.root.owns(TOPIC)
