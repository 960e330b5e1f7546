"""Two handovers at one node, one around the other (§5.1, §5.4): both end, and nothing is lost."""

from __future__ import annotations

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings
from hbroker.protocol.events import LeaseLost, Refused
from hbroker.protocol.packets import Reason
from hbroker.protocol.timers import LEASE, SECOND
from hbroker.sim.network import CLEAR, Datagram, Faults, NodeHost
from hbroker.sim.network.operators import Operator, Step
from hbroker.sim.network.storage.files import NodeFiles
from tests.network.networks import AbsentSubscriber, Tree

KETTLE = "home/kitchen/kettle"
SLOW_SYNC = SECOND // 2


def phases(datagram: Datagram, subtree: str) -> list[int]:
    """The phases of the TRANSFER packets of this subtree in a datagram."""
    transfers = (packet.transfer for packet in datagram.decode().packets)
    return [transfer.phase for transfer in transfers if transfer.subtree == subtree]


def test_a_node_that_hands_back_waits_for_a_child_below_that_was_sent_commit() -> None:
    """COMMIT is lost, and the link sends it again. Only the node that leaves has what waits."""
    tree = Tree.grow(5, ["home"])
    world, home = tree.world, tree.nodes["home"]
    subscriber = AbsentSubscriber(tree, KETTLE)
    subscriber.publish(5)
    kitchen = tree.join("home/kitchen", wait=False)
    ends = {home.address, kitchen.address}
    committed_at: list[int] = []

    def path(datagram: Datagram) -> Faults | None:
        if pb.TRANSFER_PHASE_COMMIT in phases(datagram, "home/kitchen"):
            committed_at.append(world.now)
        is_lost = committed_at and {datagram.source, datagram.destination} == ends
        return None if is_lost and world.now < committed_at[0] + SECOND // 2 else CLEAR

    world.path = path
    world.run_until(lambda: bool(committed_at))
    home.leave()
    world.run_until(lambda: home.control.has_stopped)
    home.kill()
    world.run_until(lambda: kitchen.owns(KETTLE))
    assert subscriber.read() == [1, 2, 3, 4, 5]


def test_a_node_that_ends_a_handover_below_keeps_the_link_for_other_subtrees() -> None:
    """The same link brings what the child hands back. The handover that ends has not committed."""
    tree = Tree.grow(5)
    world = tree.world
    settings = NodeSettings("home", "home", world.new_address(), root=tree.root.address)
    home = NodeHost(world, settings, NodeFiles(world, settings, sync_us=SLOW_SYNC))
    world.run_until(lambda: tree.serves(home))
    kitchen = tree.join("home/kitchen")
    world.run(3 * SECOND)
    subscriber = AbsentSubscriber(tree, KETTLE)
    subscriber.publish(5)
    ready: list[int] = []
    world.on_datagram = lambda datagram: ready.extend(phases(datagram, "home/bedroom"))
    Operator(world, [Step(kitchen, pb.ORDER_KIND_CLAIM, "home/bedroom")])
    world.run_until(lambda: pb.TRANSFER_PHASE_READY in ready)
    world.run(300)
    kitchen.leave()
    home.leave()
    world.run_until(lambda: home.control.has_stopped and kitchen.control.has_stopped)
    kitchen.kill()
    home.kill()
    world.run_until(lambda: tree.root.owns(KETTLE))
    assert subscriber.read() == [1, 2, 3, 4, 5]


def test_a_renewal_does_not_revive_a_handover_that_has_ended_over_a_link_that_stays() -> None:
    """The parent serves on, because its disk is slow. The joiner waits for a COMMIT that never comes."""
    tree = Tree.grow(5)
    world = tree.world
    settings = NodeSettings("home", "home", world.new_address(), root=tree.root.address)
    files = NodeFiles(world, settings)
    home = NodeHost(world, settings, files)
    world.run_until(lambda: tree.serves(home))
    kitchen = tree.join("home/kitchen")
    world.run(3 * SECOND)
    link = kitchen.control.jurisdiction.grant_of("home/kitchen").link
    files.sync_us = 3 * SECOND // 2
    Operator(world, [Step(kitchen, pb.ORDER_KIND_CLAIM, "home/bedroom")])
    world.run_until(lambda: home.control.jurisdiction.delegation_of("home/bedroom") is not None)
    world.run_until(lambda: home.owns("home/bedroom/lamp"), 2 * SECOND)
    files.sync_us = 0
    world.run_until(lambda: any(isinstance(event, Refused) for event in kitchen.events), LEASE)
    assert home.owns("home/bedroom/lamp")
    tree.order(kitchen, pb.ORDER_KIND_CLAIM, "home/bedroom")
    assert kitchen.owns("home/bedroom/lamp")
    assert kitchen.control.jurisdiction.grant_of("home/kitchen").link == link


@pytest.mark.parametrize("between", [0, 2_000, 10_000])
@pytest.mark.parametrize("subtrees", [("home", "home/kitchen"), ("home/kitchen", "home")])
def test_a_node_that_claims_two_subtrees_one_around_the_other_gets_all_that_waits(
    subtrees: tuple[str, str], between: int
) -> None:
    tree = Tree.grow(7, ["porch"], Faults(delay_us=1_000, jitter_us=300))
    world, porch = tree.world, tree.nodes["porch"]
    subscriber = AbsentSubscriber(tree, KETTLE)
    subscriber.publish(400)
    publisher = tree.client()
    for topic in ("home/kitchen/oven", "home/door"):
        publisher.publish(topic, b"kept", qos=1, retain=True)
    world.run_until(lambda: len(publisher.results) == 2)
    for subtree in subtrees:
        Operator(world, [Step(porch, pb.ORDER_KIND_CLAIM, subtree)])
        world.run(between)
    world.run_until(lambda: porch.owns("home/door") and porch.owns(KETTLE))
    world.run(3 * SECOND)
    assert porch.owns(KETTLE)
    subscriber.publish()
    assert subscriber.read() == list(range(1, 402))
    assert len(porch.engine.retained("home", [])) == 2


def test_a_child_renews_its_lease_while_its_parent_hands_back() -> None:
    """Handing back many messages may take longer than the child's lease."""
    tree = Tree.grow(5, ["home/kitchen", "home/kitchen/oven"])
    world, kitchen, oven = tree.world, tree.nodes["home/kitchen"], tree.nodes["home/kitchen/oven"]
    reasons: list[int] = []

    def watch(datagram: Datagram) -> None:
        if (datagram.source, datagram.destination) == (kitchen.address, oven.address):
            reasons.extend(p.joinack.reason for p in datagram.decode().packets if p.joinack.request)

    world.on_datagram = watch
    world.run_until(lambda: bool(reasons))
    world.run(2 * SECOND)
    reasons.clear()
    ends = {kitchen.address, tree.root.address}
    until = world.now + 2 * SECOND
    world.path = lambda d: None if {d.source, d.destination} == ends and world.now < until else CLEAR
    Operator(world, [Step(kitchen, pb.ORDER_KIND_HAND_BACK, "home/kitchen")])
    world.run_until(lambda: tree.root.owns(KETTLE))
    world.run(2 * LEASE)
    assert set(reasons) == {Reason.REASON_SUCCESS}
    assert not any(isinstance(event, LeaseLost) for event in oven.events)
