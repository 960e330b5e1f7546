"""Which of its earlier delegations a node may still count on, after a restart or the end of its lease
(§5.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.events import LeaseLost, TookBack
from hbroker.protocol.results import Published, Subscribed
from hbroker.sim.network import CLEAR, ClientHost, NodeHost
from tests.network.networks import Tree

SECOND = 1_000_000
TOPIC = "home/kitchen/oven"


class Branch:
    """A root, `home` below it, and `home/kitchen` below that."""

    def __init__(self) -> None:
        self.tree = Tree.grow(11, ["home", "home/kitchen"])
        self.world = self.tree.world
        self.home, self.kitchen = self.tree.nodes["home"], self.tree.nodes["home/kitchen"]

    def await_return(self) -> None:
        """Waits until the root has taken back the subtree of `home`."""
        taken = TookBack("home", "home")
        self.world.run_until(lambda: taken in self.tree.root.events)

    def restart_home(self) -> NodeHost:
        """Starts `home` again with its files. Returns as soon as it serves."""
        self.home = self.home.restart(remembers=True)
        self.world.run_until(lambda: self.tree.serves(self.home))
        return self.home

    def publish_retained(self) -> None:
        """Publishes a retained message, and waits until it is acknowledged."""
        publisher = self.tree.client()
        publisher.publish(TOPIC, b"kept", qos=1, retain=True)
        self.world.run_until(lambda: any(isinstance(o, Published) for o in publisher.results))

    def subscribe(self) -> ClientHost:
        subscriber = self.tree.client()
        subscriber.subscribe("home/kitchen/+", qos=1)
        self.world.run_until(lambda: any(isinstance(o, Subscribed) for o in subscriber.results))
        return subscriber


def test_a_restarted_node_owns_what_its_parent_served_meanwhile_without_the_old_cuts() -> None:
    """Also the subtrees that it had delegated: their holders have no lease any more."""
    branch = Branch()
    branch.home.kill()
    branch.kitchen.kill()
    branch.await_return()
    early = branch.subscribe()
    branch.publish_retained()
    home = branch.restart_home()
    assert home.owns(TOPIC)
    late = branch.subscribe()
    branch.world.run(SECOND)
    assert [message.payload for message in late.messages] == [b"kept"]
    assert [message.payload for message in early.messages] == [b"kept"]
    assert home.control.jurisdiction.delegations == []
    assert not home.delegations


def test_a_node_whose_lease_ended_owns_what_its_parent_served_meanwhile_without_the_old_cuts() -> None:
    branch = Branch()
    branch.kitchen.kill()
    ends = {branch.tree.root.address, branch.home.address}
    branch.world.path = lambda d: None if {d.source, d.destination} == ends else CLEAR
    branch.await_return()
    early = branch.subscribe()
    branch.publish_retained()
    branch.world.path = None
    branch.world.run_until(lambda: branch.home.owns(TOPIC))
    late = branch.subscribe()
    branch.world.run(SECOND)
    assert [message.payload for message in late.messages] == [b"kept"]
    assert [message.payload for message in early.messages] == [b"kept"]


def test_an_old_cut_counts_if_nobody_served_meanwhile() -> None:
    branch = Branch()
    branch.home.kill()
    branch.world.run(5 * SECOND)
    home = branch.restart_home()
    assert branch.kitchen.owns(TOPIC)
    assert not home.owns(TOPIC)
    branch.world.run(60 * SECOND)
    assert branch.kitchen.owns(TOPIC)
    assert not home.owns(TOPIC)


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000])
def test_a_delegation_of_the_parent_counts_more_than_an_old_cut_with_a_higher_epoch(ahead_ms: int) -> None:
    """The parent does not know the epochs that the node granted, and the node's clock may have been ahead."""
    branch = Branch()
    branch.home.kill()
    branch.await_return()
    root = branch.tree.root.control.jurisdiction
    branch.world.run_until(lambda: root.delegation_of("home/kitchen") is not None)
    remembered = branch.home.delegations
    remembered |= {s: replace(cut, epoch=cut.epoch + ahead_ms) for s, cut in remembered.items()}
    lost = branch.kitchen.events.count(LeaseLost("home/kitchen"))
    home = branch.restart_home()
    branch.world.run(60 * SECOND)
    assert branch.kitchen.owns(TOPIC)
    assert not home.owns(TOPIC)
    assert branch.kitchen.events.count(LeaseLost("home/kitchen")) == lost
    assert [d.subtree for d in root.delegations if d.subtree.startswith("home")] == ["home"]


def test_a_node_keeps_the_cuts_below_a_smaller_subtree_that_it_already_has() -> None:
    """The old owner cannot name those cuts, because they were never its own."""
    branch = Branch()
    branch.tree.order(branch.home, pb.ORDER_KIND_HAND_BACK, "home")
    bedroom = branch.tree.join("home/bedroom")
    lamp = branch.tree.join("home/bedroom/lamp")
    branch.tree.order(bedroom, pb.ORDER_KIND_CLAIM, "home")
    assert bedroom.owns("home/attic")
    assert bedroom.owns("home/bedroom")
    assert lamp.owns("home/bedroom/lamp")
    assert not bedroom.owns("home/bedroom/lamp")
    assert branch.kitchen.owns(TOPIC)
    assert not bedroom.owns(TOPIC)


def test_a_node_keeps_its_cuts_if_it_has_the_smaller_subtree_from_another_parent() -> None:
    """The old owner names only that parent, and knows nothing of the cuts below."""
    branch = Branch()
    branch.tree.order(branch.home, pb.ORDER_KIND_HAND_BACK, "home")
    bedroom = branch.tree.join("home/bedroom")
    lamp = branch.tree.join("home/bedroom/lamp")
    bulb = branch.tree.join("home/bedroom/lamp/bulb")
    branch.tree.order(lamp, pb.ORDER_KIND_CLAIM, "home")
    for _ in range(100):
        assert lamp.owns("home/attic")
        assert bedroom.owns("home/bedroom")
        assert lamp.owns("home/bedroom/lamp")
        assert bulb.owns("home/bedroom/lamp/bulb")
        assert not lamp.owns("home/bedroom/lamp/bulb")
        branch.world.run(SECOND // 4)


def test_a_node_that_died_before_it_served_does_not_count_on_its_old_cuts() -> None:
    """The parent cannot tell whether the run in between served."""
    branch = Branch()
    branch.home.kill()
    branch.kitchen.kill()
    branch.await_return()
    branch.publish_retained()
    ready = branch.tree.watch_for(lambda t: t.subtree == "home" and t.phase == pb.TRANSFER_PHASE_READY)
    branch.home = branch.home.restart(remembers=True)
    branch.world.run_until(lambda: bool(ready))
    branch.home.kill()
    branch.world.run(SECOND)
    assert branch.restart_home().owns(TOPIC)


def test_another_node_of_the_same_name_takes_no_subtree() -> None:
    """Not even around the subtree of the first node: without its name it claims nothing (§5.1)."""
    tree = Tree.grow(12)
    one = tree.join("home/bedroom", name="twin")
    other = tree.join("home", name="twin", wait=False)
    for _ in range(400):
        assert one.owns("home/bedroom")
        assert not other.owns("home/attic")
        tree.world.run(SECOND // 10)
    one.kill()
    tree.world.run_until(lambda: other.owns("home/attic"))
