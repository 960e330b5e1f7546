"""What a node may believe of what it delegated in an earlier run, or under an earlier lease (§5.4)."""

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
        """The root takes back what `home` had."""
        taken = TookBack("home", "home")
        self.world.run_until(lambda: taken in self.tree.root.events)

    def restart_home(self) -> NodeHost:
        """Starts `home` again with its memory; returns as soon as it serves."""
        self.home = self.home.restart(remembers=True)
        self.world.run_until(lambda: self.tree.serves(self.home))
        return self.home

    def keep(self) -> None:
        """Publishes a retained message, and waits until it is acknowledged."""
        publisher = self.tree.client()
        publisher.publish(TOPIC, b"kept", qos=1, retain=True)
        self.world.run_until(lambda: any(isinstance(o, Published) for o in publisher.results))

    def subscribe(self) -> ClientHost:
        subscriber = self.tree.client()
        subscriber.subscribe("home/kitchen/+", qos=1)
        self.world.run_until(lambda: any(isinstance(o, Subscribed) for o in subscriber.results))
        return subscriber


def test_what_its_parent_served_meanwhile_is_its_own_again() -> None:
    """Also what it had delegated: whoever held that has no lease any more."""
    branch = Branch()
    branch.home.kill()
    branch.kitchen.kill()
    branch.await_return()
    early = branch.subscribe()
    branch.keep()
    home = branch.restart_home()
    assert home.owns(TOPIC)
    late = branch.subscribe()
    branch.world.run(SECOND)
    assert [message.payload for message in late.messages] == [b"kept"]
    assert [message.payload for message in early.messages] == [b"kept"]
    assert home.control.jurisdiction.delegations == []
    assert not home.delegations


def test_the_same_holds_of_a_node_whose_lease_has_ended_though_it_lives() -> None:
    branch = Branch()
    branch.kitchen.kill()
    ends = {branch.tree.root.address, branch.home.address}
    branch.world.path = lambda d: None if {d.source, d.destination} == ends else CLEAR
    branch.await_return()
    early = branch.subscribe()
    branch.keep()
    branch.world.path = None
    branch.world.run_until(lambda: branch.home.owns(TOPIC))
    late = branch.subscribe()
    branch.world.run(SECOND)
    assert [message.payload for message in late.messages] == [b"kept"]
    assert [message.payload for message in early.messages] == [b"kept"]


def test_what_it_delegated_is_held_where_nobody_has_served_since() -> None:
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
def test_what_its_parent_delegated_meanwhile_counts_whatever_its_own_clock_said(ahead_ms: int) -> None:
    """Its parent cannot know the epochs that it granted, and its clock may have been ahead."""
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


def test_what_lies_below_a_subtree_that_it_has_already_is_its_own_affair() -> None:
    """The old owner cannot name it: it was never its own."""
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


def test_so_is_what_it_delegated_under_another_parent() -> None:
    """The old owner names that parent alone, and knows nothing of what lies below."""
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


def test_one_that_dies_on_the_way_believes_its_old_memory_no_more() -> None:
    """Its parent cannot tell whether the run in between has served."""
    branch = Branch()
    branch.home.kill()
    branch.kitchen.kill()
    branch.await_return()
    branch.keep()
    ready = branch.tree.watch_for(lambda t: t.subtree == "home" and t.phase == pb.TRANSFER_PHASE_READY)
    branch.home = branch.home.restart(remembers=True)
    branch.world.run_until(lambda: bool(ready))
    branch.home.kill()
    branch.world.run(SECOND)
    assert branch.restart_home().owns(TOPIC)


def test_another_node_of_the_same_name_takes_nothing() -> None:
    """Not even what lies around the subtree of the first: it has no name, so it claims nothing (§5.1)."""
    tree = Tree.grow(12)
    one = tree.join("home/bedroom", name="twin")
    other = tree.join("home", name="twin", wait=False)
    for _ in range(400):
        assert one.owns("home/bedroom")
        assert not other.owns("home/attic")
        tree.world.run(SECOND // 10)
    one.kill()
    tree.world.run_until(lambda: other.owns("home/attic"))
