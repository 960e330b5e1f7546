"""Every datagram fits 1,200 bytes, however large the network is, except one with one long name (§3.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hbroker import topology
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import REQUEST_PADDING
from hbroker.protocol.results import Published, Resolved, Subscribed
from hbroker.sim.network import CLEAR, Datagram, Faults, World
from tests.network.networks import Tree

MOST = 1_200
NARROW = Faults(mtu=MOST)
CAMPUS = Path(__file__).parents[2] / "topologies" / "campus.yaml"
LONG = 20_000
MANY = 250
"""Children: a list of them takes more than ten datagrams."""


@dataclass
class Sizes:
    """The datagrams that left any host, and those that were too large."""

    count: int = 0
    too_large: list[tuple[int, list[str]]] = field(default_factory=list)

    def watch(self, datagram: Datagram) -> None:
        """Records a datagram. Size probes, which hold nothing but a PING, may be larger."""
        self.count += 1
        if len(datagram.data) > MOST and datagram.kinds() != ["ping"]:
            self.too_large.append((len(datagram.data), datagram.kinds()))


def measured(seed: int) -> tuple[Tree, Sizes]:
    tree = Tree.grow(seed, faults=NARROW)
    sizes = Sizes()
    tree.world.on_datagram = sizes.watch
    return tree, sizes


def subscribe(tree: Tree, filter: str) -> Subscribed:
    client = tree.client()
    client.subscribe(filter, qos=1)
    tree.world.run_until(lambda: bool(client.results))
    (result,) = client.results
    assert isinstance(result, Subscribed)
    return result


def test_the_nodes_of_a_campus_join_resolve_and_hand_over_in_datagrams_that_fit() -> None:
    tree, sizes = measured(1)
    everywhere = tree.client("early")
    for number in range(200):
        everywhere.subscribe(f"+/+/{number}/#", qos=1)
    nodes = [node for node in topology.load(CAMPUS).nodes if node.subtree]
    for node in sorted(nodes, key=lambda node: node.subtree.count("/")):
        tree.join(node.subtree, name=node.name)
    assert len(tree.nodes) == len(nodes) > 30
    assert set(subscribe(tree, "#").owners) == {
        node.settings.name for node in (tree.root, *tree.nodes.values())
    }
    subscribe(tree, "$SYS/nodes/+/status")
    client = tree.client()
    for subtree in tree.nodes:
        client.resolve(f"{subtree}/x", trace=True)
    tree.world.run_until(lambda: len(client.results) == len(tree.nodes))
    assert all(isinstance(result, Resolved) for result in client.results)
    list(tree.nodes.values())[-1].control.leave(tree.world.now)
    tree.world.run(20_000_000)
    assert sizes.count > 1_000
    assert sizes.too_large == []


def test_a_list_of_many_children_is_sent_in_parts_that_each_fit() -> None:
    tree, sizes = measured(2)
    nodes = [tree.join(f"campus/room-{number}", wait=False) for number in range(MANY)]
    tree.world.run_until(lambda: nodes[-1].control.is_serving and all(map(tree.serves, nodes)))
    for filter in ("campus/+/temperature", "$SYS/nodes/+/status"):
        assert len(subscribe(tree, filter).owners) >= MANY
    client = tree.client()
    client.publish("campus/room-7/temperature", b"21", qos=1)
    tree.world.run_until(lambda: any(isinstance(o, Published) for o in client.results))
    assert sizes.count > 10 * MANY
    assert sizes.too_large == []


def test_lost_parts_of_a_list_are_requested_again() -> None:
    tree, sizes = measured(3)
    nodes = [tree.join(f"campus/room-{number}", wait=False) for number in range(100)]
    tree.world.run_until(lambda: all(map(tree.serves, nodes)))
    lost: set[int] = set()

    def lossy(datagram: Datagram) -> Faults | None:
        """Loses every part the first time."""
        parts = [p.suback for p in datagram.decode().packets if p.HasField("suback") and p.suback.parts]
        fresh = {suback.part for suback in parts if not datagram.decode().header.session} - lost
        lost.update(fresh)
        return None if fresh else NARROW

    tree.world.path = lossy
    assert len(subscribe(tree, "campus/+/temperature").owners) >= 100
    assert len(lost) > 3
    assert sizes.too_large == []


@pytest.mark.parametrize("faults", [CLEAR, Faults(loss=0.1)])
def test_a_long_topic_is_sent_alone_in_a_larger_datagram(faults: Faults) -> None:
    """A name may have 65,535 bytes, and the path must carry it (§3.4)."""
    topic = "home/" + "x" * LONG
    tree = Tree.grow(4, ["home"], faults)
    larger: list[list[str]] = []

    def watch(datagram: Datagram) -> None:
        if len(datagram.data) > MOST:
            larger.append(datagram.kinds())

    tree.world.on_datagram = watch
    subscriber, publisher = tree.client(), tree.client()
    subscriber.subscribe(topic, qos=1)
    tree.world.run_until(lambda: bool(subscriber.results))
    publisher.publish(topic, b"21", qos=1)
    tree.world.run_until(lambda: bool(publisher.results and subscriber.messages))
    assert [message.topic for message in subscriber.messages] == [topic]
    assert all(isinstance(result, Published) and result.reason == 0 for result in publisher.results)
    assert larger
    assert all(len(kinds) == 1 for kinds in larger), larger


def test_the_check_of_sizes_can_fail() -> None:
    sizes = Sizes()
    for length in (MOST, MOST + 1):
        padding = pb.Datagram(padding=b"\0" * (length - 3)).SerializeToString()
        assert len(padding) == length > REQUEST_PADDING
        sizes.watch(Datagram(World(1).now, ("10.0.0.1", 1), ("10.0.0.1", 2), padding))
    assert sizes.too_large == [(MOST + 1, [])]
