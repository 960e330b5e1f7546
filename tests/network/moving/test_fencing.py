"""An owner whose lease ended had subscriptions. Their clients still reach it, and find the new owner."""

from __future__ import annotations

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.events import LeaseLost, TookBack
from hbroker.protocol.results import Published, Subscribed
from hbroker.sim.network import CLEAR, ClientHost, Datagram, Faults, NodeHost
from tests.network.networks import Tree

TOPIC = "home/kitchen/oven"
FILTER = "home/kitchen/#"


class SeparatedPair:
    """A root and a node that cannot reach each other. Clients reach both."""

    def __init__(self) -> None:
        self.tree = Tree.grow(7)
        self.kitchen = self.tree.join("home/kitchen")
        self.ends = {self.tree.root.address, self.kitchen.address}
        self.tree.world.path = self.path

    def path(self, datagram: Datagram) -> Faults | None:
        return None if {datagram.source, datagram.destination} == self.ends else CLEAR

    def await_fence(self) -> None:
        self.tree.world.run_until(lambda: LeaseLost("home/kitchen") in self.kitchen.events)

    def await_return(self) -> None:
        taken = TookBack("home/kitchen", "kitchen")
        self.tree.world.run_until(lambda: taken in self.tree.root.events)

    def listener(self) -> ClientHost:
        return self.subscribe(self.tree.client("listener"))

    def subscribe(self, client: ClientHost) -> ClientHost:
        client.subscribe(FILTER, qos=1)
        self.tree.world.run_until(lambda: any(isinstance(o, Subscribed) for o in client.results))
        return client

    def publish(self) -> None:
        publisher = self.tree.client("publisher")
        publisher.publish(TOPIC, b"after", qos=1)
        self.tree.world.run_until(lambda: any(isinstance(o, Published) for o in publisher.results))


def test_a_subscription_moves_to_the_parent_that_took_the_subtree_back() -> None:
    separated = SeparatedPair()
    listener = separated.listener()
    separated.await_fence()
    separated.await_return()
    separated.tree.world.run(5_000_000)
    separated.publish()
    assert [message.payload for message in listener.messages] == [b"after"]


def test_a_subscription_moves_back_when_the_fenced_owner_has_the_subtree_again() -> None:
    separated = SeparatedPair()
    listener = separated.listener()
    separated.await_fence()
    separated.await_return()
    separated.tree.world.path = None
    separated.tree.world.run(10_000_000)
    assert separated.kitchen.engine.owns(separated.tree.world.now, TOPIC)
    separated.publish()
    assert [message.payload for message in listener.messages] == [b"after"]


@pytest.mark.parametrize("first", ["root", "kitchen"])
def test_a_subscription_is_not_complete_while_a_named_owner_does_not_own_its_subtree(first: str) -> None:
    """Whichever of the two answers first: the node that names the owner, or the owner itself."""
    tree = Tree.grow(8)
    kitchen = tree.join("home/kitchen")
    slow = kitchen.address if first == "root" else tree.root.address
    brokers = tree.brokers()

    def path(datagram: Datagram) -> Faults:
        is_slow = datagram.source == slow and datagram.destination not in brokers
        return Faults(delay_us=5_000) if is_slow else CLEAR

    tree.world.path = path
    grant = kitchen.control.jurisdiction.grant_of("home/kitchen")
    assert grant is not None
    kitchen.control.jurisdiction.remove_grant("home/kitchen")
    listener = tree.client("listener")
    subscription = listener.subscribe(FILTER, qos=1)
    tree.world.run(3_000_000)
    assert not listener.results
    kitchen.control.jurisdiction.set_grant(grant)
    tree.world.run_until(lambda: bool(listener.results))
    assert listener.results[0] == Subscribed(subscription, ("kitchen",))
    assert len(kitchen.control.subscription_store) == 1


def test_a_part_in_recovery_moves_with_the_subtree_around_it() -> None:
    tree = Tree.grow(9)
    tree.root.control.jurisdiction.begin_recovery("home/kitchen", 5)
    home = tree.join("home")
    assert home.owns(TOPIC)
    assert not tree.root.owns(TOPIC)


def test_a_former_parent_takes_back_nothing_below_a_subtree_that_it_gave_away() -> None:
    """It keeps the cuts that went along until it hears that the new owner serves. The renewals do not come
    to it any more."""
    tree = Tree.grow(10, ["home/kitchen"])
    kitchen = tree.nodes["home/kitchen"]
    committed = tree.watch_for(lambda t: t.subtree == "home" and t.phase == pb.TRANSFER_PHASE_COMMIT)
    tree.world.run(3 * timers.SECOND)
    home = tree.join("home", wait=False)

    def path(datagram: Datagram) -> Faults | None:
        way = datagram.source, datagram.destination
        return None if committed and way == (home.address, tree.root.address) else CLEAR

    tree.world.path = path
    check_single_owner(tree, [tree.root, home, kitchen], 25 * timers.SECOND)
    assert TookBack("home", "home") in tree.root.events
    assert TookBack("home/kitchen", "kitchen") not in tree.root.events


class ForgetfulRoot:
    """A root that restarted without its files, a node `home` that it cannot reach for a while, and a part
    of `home` that it grants to another node meanwhile."""

    def __init__(self, seed: int, seconds: int) -> None:
        self.tree = Tree.grow(seed, ["home", "home/kitchen"])
        self.home, self.kitchen = self.tree.nodes["home"], self.tree.nodes["home/kitchen"]
        self.tree.root.kill()
        self.root = self.tree.root.restart()
        self.began_at = self.tree.world.now
        self.is_cut_off = {self.root.address, self.home.address}
        self.tree.world.path = lambda d: None if {d.source, d.destination} == self.is_cut_off else CLEAR
        self.other = self.tree.join("home/kitchen", name="other")
        self.run_until(seconds)

    @property
    def nodes(self) -> list[NodeHost]:
        return [self.root, self.home, self.kitchen, self.other]

    def run_until(self, seconds: int) -> None:
        """Lets time pass until `seconds` after the restart of the root."""
        self.tree.world.run(self.began_at + seconds * timers.SECOND - self.tree.world.now)


def test_a_parent_that_forgot_a_delegation_refuses_its_renewal_if_it_granted_a_part_of_it_since() -> None:
    """The part has an owner of which the former child knows nothing."""
    run = ForgetfulRoot(11, 17)
    assert run.kitchen.owns(TOPIC)
    assert run.other.owns(TOPIC)
    run.tree.world.path = lambda d: None if run.other.address in (d.source, d.destination) else CLEAR
    run.run_until(18)
    assert LeaseLost("home") in run.home.events
    run.run_until(22)
    check_single_owner(run.tree, run.nodes, 40 * timers.SECOND)


def test_a_part_that_a_forgetful_parent_granted_becomes_a_cut_of_the_child_around_it() -> None:
    run = ForgetfulRoot(12, 5)
    run.tree.world.path = None
    run.run_until(22)
    check_single_owner(run.tree, run.nodes, 20 * timers.SECOND)
    assert run.other.owns(TOPIC)
    assert run.home.owns("home/door")
    assert run.home.control.jurisdiction.delegation_of("home/kitchen") is not None


def test_a_parent_that_forgot_a_delegation_accepts_its_renewal_if_it_granted_nothing_of_it() -> None:
    tree = Tree.grow(13, ["home", "home/kitchen"])
    home = tree.nodes["home"]
    tree.root.kill()
    root = tree.root.restart()
    tree.world.run_until(lambda: root.control.jurisdiction.delegation_of("home") is not None)
    assert not any(isinstance(node_event, LeaseLost) for node_event in home.events)
    assert home.owns("home/door")


def test_a_parent_that_forgot_twice_leaves_a_part_to_its_holder() -> None:
    """Between its two restarts it granted a subtree that another node still holds, under a higher epoch."""
    run = ForgetfulRoot(14, 2)
    run.root.kill()
    root = run.root.restart()
    run.tree.world.path = lambda d: (
        None if {d.source, d.destination} == {root.address, run.other.address} else CLEAR
    )
    run.run_until(13)
    assert root.control.jurisdiction.delegation_of("home") is not None
    ends = {run.home.address, run.kitchen.address}
    run.tree.world.path = lambda d: None if {d.source, d.destination} == ends else CLEAR
    run.run_until(24)
    check_single_owner(run.tree, [root, *run.nodes[1:]], 40 * timers.SECOND)


def check_single_owner(tree: Tree, nodes: list[NodeHost], period: int) -> None:
    """Lets time pass, and checks all the while that at most one node accepts a message."""
    for _ in range(period // (timers.SECOND // 20)):
        tree.world.run(timers.SECOND // 20)
        assert sum(node.owns(TOPIC) for node in nodes) <= 1
