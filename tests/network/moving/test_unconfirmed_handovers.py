"""Between COMMIT and DONE only the source's files have what was handed over (§5.4, §5.10).

So until DONE the source keeps all of it, whatever the target does, and hands nothing around the subtree on.
Otherwise the owner of a cut and the target's next run would own the same topics, and messages would be lost.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.events import LeaseLost
from hbroker.protocol.timers import SECOND
from hbroker.sim.network import CLEAR, Datagram, Faults, NodeHost
from hbroker.sim.network.operators import Operator, Step
from hbroker.sim.network.storage.files import NodeFiles
from tests.network.networks import AbsentSubscriber, Tree

TOPIC = "home/kitchen/oven/light"
KETTLE = "home/kitchen/kettle"
SLOW_SYNC = SECOND // 2
LINK_LOST = 16 * SECOND
"""After this time without an answer both ends of a link know that it is lost."""
SOON = 3 * SECOND
"""A child whose handover ended without its knowledge would try again later, with its next renewal."""


class Owners:
    """A tree in which `home/kitchen/oven` has an owner. Checks at each step that the topic has one owner."""

    def __init__(self, root_sync_us: int = 0) -> None:
        self.tree = Tree.grow(5)
        self.world = self.tree.world
        if root_sync_us:
            self.tree.root.kill()
            settings = self.tree.root.settings
            self.tree.root = NodeHost(
                self.world, settings, NodeFiles(self.world, settings, sync_us=root_sync_us)
            )
        self.oven = self.tree.join("home/kitchen/oven")
        self.world.on_acted = lambda host: self._check()

    def start(self, subtree: str, *, sync_us: int = 0, has_full_disk: bool = False) -> NodeHost:
        """Starts a node. If its disk is full, its next run knows nothing of what this run took over."""
        name = subtree.replace("/", "-")
        settings = NodeSettings(name, subtree, self.world.new_address(), root=self.tree.root.address)
        files = NodeFiles(self.world, settings, sync_us=sync_us)
        files.disk.free_bytes = 0 if has_full_disk else None
        return NodeHost(self.world, settings, files)

    def start_kitchen(self) -> NodeHost:
        """Starts the owner of the kitchen, with a full disk, and waits until it has the subtree."""
        kitchen = self.start("home/kitchen", has_full_disk=True)
        self.world.run_until(lambda: kitchen.owns(KETTLE))
        return kitchen

    def run_again(self, kitchen: NodeHost) -> NodeHost:
        """Kills the owner of the kitchen, starts it on a disk that has room, and waits until it has the
        subtree."""
        kitchen.kill()
        kitchen.files.mend()
        again = kitchen.restart(remembers=True)
        self.world.run_until(lambda: again.owns(KETTLE))
        return again

    def run_until_sent(self, is_it: Callable[[pb.Packet], bool]) -> None:
        """Runs until a host sends such a packet."""
        sent = False

        def watch(datagram: Datagram) -> None:
            nonlocal sent
            sent = sent or any(map(is_it, datagram.decode().packets))

        self.world.on_datagram = watch
        self.world.run_until(lambda: sent)
        self.world.on_datagram = None

    def lose_link(self, node: NodeHost, subtree: str) -> None:
        """The link over which a node holds a subtree breaks. The node renews over another link."""
        link = node.control.jurisdiction.grant_of(subtree).link
        assert link is not None
        node.engine.close(link)
        self.world.drive(node)

    def _check(self) -> None:
        nodes = [host for host in self.world.hosts.values() if isinstance(host, NodeHost)]
        owners = [node.settings.name for node in nodes if node.owns(TOPIC)]
        assert len(owners) <= 1, owners


def is_phase(packet: pb.Packet, phase: int) -> bool:
    """Whether a packet is TRANSFER of the kitchen in this phase."""
    return (packet.transfer.subtree, packet.transfer.phase) == ("home/kitchen", phase)


def test_a_child_that_dies_while_it_hands_back_a_subtree_that_its_disk_does_not_have() -> None:
    network = Owners()
    kitchen = network.start_kitchen()
    kitchen.leave()
    network.world.run(300)  # LEAVE has arrived. COMMIT follows after READY.
    kitchen = network.run_again(kitchen)
    network.world.run(2 * timers.LEASE)
    assert network.oven.owns(TOPIC)


def test_a_child_that_loses_its_link_and_dies_before_its_disk_is_synced() -> None:
    """A renewal over another link is no DONE."""
    network = Owners()
    kitchen = network.start_kitchen()
    network.lose_link(kitchen, "home/kitchen")
    network.run_until_sent(lambda packet: packet.join.subtree == "home/kitchen" and bool(packet.join.epoch))
    network.world.run(SECOND // 100)
    kitchen = network.run_again(kitchen)
    network.world.run(2 * timers.LEASE)
    assert network.oven.owns(TOPIC)


@pytest.mark.parametrize("later", range(1_000, 2_000, 200))
def test_a_subtree_around_one_that_is_being_handed_over_is_delegated_after_done(later: int) -> None:
    """Both handovers wait for the source's disk, and go on at the same time."""
    network = Owners(root_sync_us=SLOW_SYNC)
    home = network.start("porch")
    network.world.run_until(lambda: home.control.is_serving)
    kitchen = network.start("home/kitchen")
    network.run_until_sent(lambda packet: is_phase(packet, pb.TRANSFER_PHASE_READY))
    network.world.run(later)
    Operator(network.world, [Step(home, pb.ORDER_KIND_CLAIM, "home")])
    network.world.run_until(lambda: home.owns("home/x") and kitchen.control.is_serving, SOON)
    network.world.run(2 * timers.LEASE)
    assert network.oven.owns(TOPIC)
    assert kitchen.owns("home/kitchen/kettle")


def test_a_node_that_hands_back_a_subtree_ends_the_handovers_below_it() -> None:
    network = Owners()
    home = network.start("home", sync_us=SLOW_SYNC)
    network.world.run_until(lambda: home.control.is_serving)
    network.world.run(2 * SECOND)
    kitchen = network.start("home/kitchen")
    network.run_until_sent(lambda packet: is_phase(packet, pb.TRANSFER_PHASE_READY))
    Operator(network.world, [Step(home, pb.ORDER_KIND_HAND_BACK, "home")])
    network.world.run_until(lambda: kitchen.control.is_serving and not home.owns("home/x"), SOON)
    network.world.run(2 * timers.LEASE)
    assert network.oven.owns(TOPIC)
    assert kitchen.owns("home/kitchen/kettle")


def test_a_node_delegates_nothing_around_a_subtree_that_it_is_taking_over() -> None:
    """The node does not hear that its child has ended the handover. It must not name itself as the owner of a
    part that it does not have."""
    network = Owners()
    world, porch = network.world, network.start("porch")
    home = network.start("home")
    kitchen = network.start("home/kitchen", sync_us=SLOW_SYNC)
    world.run_until(lambda: all(node.control.is_serving for node in (porch, home, kitchen)))
    world.run(2 * SECOND)
    subscriber = network.tree.client()
    subscriber.subscribe("home/kitchen/kettle/level", qos=1)
    world.run_until(lambda: bool(subscriber.results))
    Operator(world, [Step(home, pb.ORDER_KIND_CLAIM, "home/kitchen/kettle")])
    ready = pb.TRANSFER_PHASE_READY
    network.run_until_sent(lambda p: (p.transfer.subtree, p.transfer.phase) == ("home/kitchen/kettle", ready))
    world.run(1_000)
    lost_session = home.session

    def path(datagram: Datagram) -> Faults | None:
        is_lost = datagram.source == kitchen.address and datagram.decode().header.session == lost_session
        return None if is_lost else CLEAR

    world.path = path
    Operator(world, [Step(kitchen, pb.ORDER_KIND_HAND_BACK, "home/kitchen")])
    world.run_until(lambda: not kitchen.is_serving_subtree("home/kitchen"))
    Operator(world, [Step(porch, pb.ORDER_KIND_CLAIM, "home/kitchen")])
    publisher = network.tree.client()
    for number in range(400):
        publisher.publish("home/kitchen/kettle/level", str(number).encode(), 1)
        world.run(SECOND // 10)
    world.run_until(lambda: len(publisher.results) == 400)
    world.run(SECOND)
    assert network.oven.owns(TOPIC)
    assert [int(message.payload) for message in subscriber.messages] == list(range(400))


def test_done_is_sent_again_over_the_next_link() -> None:
    """The child's disk was synced when COMMIT came, so DONE was sent at once. It is lost with the link."""
    network = Owners()
    world, root = network.world, network.tree.root
    subscriber = AbsentSubscriber(network.tree, KETTLE)
    subscriber.publish()
    kitchen = network.start("home/kitchen")
    network.run_until_sent(lambda packet: is_phase(packet, pb.TRANSFER_PHASE_COMMIT))
    ends = {kitchen.address, root.address}
    sent_at: list[int] = []

    def path(datagram: Datagram) -> Faults | None:
        if any(is_phase(packet, pb.TRANSFER_PHASE_DONE) for packet in datagram.decode().packets):
            sent_at.append(world.now)
        return None if sent_at and {datagram.source, datagram.destination} == ends else CLEAR

    world.path = path
    world.run_until(lambda: bool(sent_at))
    network.lose_link(kitchen, "home/kitchen")
    world.path = None
    network.run_until_sent(lambda packet: is_phase(packet, pb.TRANSFER_PHASE_DONE))
    assert subscriber.read() == [1]
    kitchen = network.run_again(kitchen)
    assert not subscriber.read(), "The parent would hand the message over again."


def test_nothing_is_forgotten_while_a_child_without_a_link_owes_done() -> None:
    """A node forgets what it does not need when a child hands back a subtree."""
    network = Owners()
    world, subscriber = network.world, AbsentSubscriber(network.tree, KETTLE)
    garden = network.start("garden")
    world.run_until(lambda: garden.control.is_serving)
    subscriber.publish()
    kitchen = network.start_kitchen()
    network.lose_link(kitchen, "home/kitchen")
    world.run(3 * SECOND)
    Operator(world, [Step(garden, pb.ORDER_KIND_HAND_BACK, "garden")])
    world.run_until(lambda: network.tree.root.owns("garden/x"))
    kitchen = network.run_again(kitchen)
    subscriber.publish()
    assert subscriber.read() == [1, 2]


def test_a_subtree_around_a_child_that_has_lost_its_link_is_delegated_after_done() -> None:
    network = Owners()
    world, subscriber = network.world, AbsentSubscriber(network.tree, KETTLE)
    porch = network.start("porch")
    world.run_until(lambda: porch.control.is_serving)
    subscriber.publish()
    kitchen = network.start_kitchen()
    network.lose_link(kitchen, "home/kitchen")
    Operator(world, [Step(porch, pb.ORDER_KIND_CLAIM, "home")])
    world.run(10 * SECOND)
    assert not porch.owns("home/x")
    kitchen = network.run_again(kitchen)
    world.run_until(lambda: porch.owns("home/x") and kitchen.owns(KETTLE))
    subscriber.publish()
    assert subscriber.read() == [1, 2]


def test_a_cut_below_a_child_that_owes_done_is_kept_for_longer_than_a_lease() -> None:
    network = Owners()
    kitchen = network.start_kitchen()
    network.world.run(3 * timers.LEASE)
    kitchen = network.run_again(kitchen)
    network.world.run(2 * timers.LEASE)
    assert network.oven.owns(TOPIC)


def test_the_cuts_below_a_child_that_owes_done_end_with_its_lease() -> None:
    """The child and the owner below it have gone: the parent serves all topics again."""
    network = Owners()
    kitchen = network.start_kitchen()
    kitchen.kill()
    network.oven.kill()
    network.world.run_until(lambda: network.tree.root.owns(TOPIC), 3 * timers.LEASE)
    assert network.tree.root.owns(KETTLE)


def test_a_restarted_child_is_refused_while_its_delegation_is_not_on_the_disk() -> None:
    """Its handover could not commit, and its subtree would have no owner for as long as the child asks."""
    network = Owners()
    world = network.world
    kitchen = network.start_kitchen()
    world.run(2 * timers.LEASE)
    network.oven.kill()
    network.oven = network.oven.restart(remembers=True)
    world.run_until(lambda: kitchen.owns(TOPIC), 2 * timers.LEASE)
    kitchen.files.mend()
    world.run_until(lambda: network.oven.owns(TOPIC))


@pytest.mark.parametrize("has_full_disk", [True, False])
@pytest.mark.parametrize("reads_early", [True, False])
def test_what_waits_for_a_subscriber_comes_from_one_side_after_a_failed_handing_back(
    has_full_disk: bool, reads_early: bool
) -> None:
    """COMMIT of the child is lost, and neither node knows which of them has the subtree."""
    network = Owners()
    world, root = network.world, network.tree.root
    subscriber = AbsentSubscriber(network.tree, KETTLE)
    subscriber.publish(3)
    kitchen = network.start("home/kitchen", has_full_disk=has_full_disk)
    world.run_until(lambda: kitchen.owns(KETTLE))
    read = subscriber.read() if reads_early else []
    subscriber.publish(2)
    ends = {kitchen.address, root.address}
    committed_at: list[int] = []

    def path(datagram: Datagram) -> Faults | None:
        if any(is_phase(packet, pb.TRANSFER_PHASE_COMMIT) for packet in datagram.decode().packets):
            committed_at.append(world.now)
        is_lost = committed_at and {datagram.source, datagram.destination} == ends
        return None if is_lost and world.now < committed_at[0] + LINK_LOST else CLEAR

    world.path = path
    Operator(world, [Step(kitchen, pb.ORDER_KIND_HAND_BACK, "home/kitchen")])
    world.run_until(lambda: bool(committed_at))
    world.run(LINK_LOST)
    kitchen.files.mend()
    world.run_until(lambda: root.owns(KETTLE))
    assert read + subscriber.read() == [1, 2, 3, 4, 5]


def test_a_child_that_has_renewed_over_another_link_is_not_sent_what_it_had_once_more() -> None:
    """Its lease ends, because the path fails. It joins again before its parent takes the subtree back."""
    network = Owners()
    world, root = network.world, network.tree.root
    subscriber = AbsentSubscriber(network.tree, KETTLE)
    subscriber.publish(3)
    kitchen = network.start_kitchen()
    assert subscriber.read() == [1, 2, 3]
    network.lose_link(kitchen, "home/kitchen")
    world.run(3 * SECOND)
    ends = {kitchen.address, root.address}
    world.path = lambda datagram: None if {datagram.source, datagram.destination} == ends else CLEAR
    world.run_until(lambda: LeaseLost("home/kitchen") in kitchen.events)
    world.path = None
    world.run_until(lambda: kitchen.owns(KETTLE), SOON)
    assert not subscriber.read()


def payloads(node: NodeHost) -> dict[str, bytes]:
    """The retained messages of the kitchen at a node."""
    found = map(pb.Publish.FromString, node.engine.retained("home/kitchen", []))
    return {message.topic: message.payload for message in found}


def retain(network: Owners, payload: bytes) -> None:
    """Publishes a retained message, and waits for its PUBACK."""
    publisher = network.tree.client()
    publisher.publish(KETTLE, payload, 1, True)
    network.world.run_until(lambda: bool(publisher.results))


def with_retained(*, has_full_disk: bool = False) -> tuple[Owners, NodeHost, NodeHost]:
    """A network, its root, and a node that has taken the kitchen over, with a retained message."""
    network = Owners()
    retain(network, b"kept")
    kitchen = network.start("home/kitchen", has_full_disk=has_full_disk)
    network.world.run_until(lambda: kitchen.owns(KETTLE))
    return network, network.tree.root, kitchen


def test_retained_messages_of_a_target_that_dies_before_done_are_at_the_source() -> None:
    network, root, kitchen = with_retained(has_full_disk=True)
    assert payloads(kitchen) == {KETTLE: b"kept"}
    kitchen.kill()
    network.world.run_until(lambda: root.owns(KETTLE), 2 * timers.LEASE)
    assert payloads(root) == {KETTLE: b"kept"}


def test_retained_messages_are_gone_from_the_source_after_done_and_those_that_come_back_count() -> None:
    network, root, kitchen = with_retained()
    network.world.run(SECOND)
    assert payloads(root) == {}
    kitchen.leave()
    network.world.run_until(lambda: root.owns(KETTLE))
    network.world.run(SECOND)
    assert (payloads(root), payloads(kitchen)) == ({KETTLE: b"kept"}, {})


def test_a_topic_that_an_unconfirmed_target_cleared_is_clear_when_it_hands_back() -> None:
    """The source has the retained message until DONE, which waits for the target's disk."""
    network, root, kitchen = with_retained(has_full_disk=True)
    retain(network, b"")
    assert (payloads(root), payloads(kitchen)) == ({KETTLE: b"kept"}, {})
    kitchen.leave()
    network.world.run_until(lambda: root.owns(KETTLE))
    assert payloads(root) == {}
