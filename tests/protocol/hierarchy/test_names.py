"""A name is one node's (§5.1): another that has it claims nothing until the first is gone."""

from __future__ import annotations

from hbroker.config import NodeSettings
from hbroker.protocol.events import NameTaken, Refused
from hbroker.protocol.packets import Address
from hbroker.protocol.timers import LEASE, SECOND
from tests.protocol.world import ROOT, Running, World

ELSEWHERE: Address = ("10.0.7.7", 7700)


def start_alike(world: World, subtree: str) -> Running:
    """Another node called `kitchen`, at another address; the world still finds the first as `first`."""
    world.nodes["first"] = world.nodes["kitchen"]
    return world._start(NodeSettings("kitchen", subtree, ELSEWHERE, ROOT))


def test_a_second_node_of_a_name_owns_nothing_and_says_why() -> None:
    world = World()
    world.start_root()
    first = world.start_node("kitchen", "home/kitchen")
    world.advance(1)
    second = start_alike(world, "garden")
    world.advance(30)
    assert world.owners("garden/x") == ["root"]
    assert world.owners("home/kitchen/x") == ["first"]
    assert not second.node.is_serving
    assert not second.node.has_stopped, "the first may leave"
    told = world.events("kitchen")
    assert told == [NameTaken("$SYS/nodes/kitchen", "kitchen", first.settings.listen)], "once"


def test_it_takes_its_place_when_the_first_has_left() -> None:
    world = World()
    world.start_root()
    world.start_node("kitchen", "home/kitchen")
    world.advance(1)
    start_alike(world, "garden")
    world.advance(5)
    world.leave("first")
    world.advance(6)
    assert world.owners("garden/x") == ["kitchen"]


def test_a_node_that_comes_back_elsewhere_waits_for_the_lease_of_its_former_self() -> None:
    world = World()
    world.start_root()
    world.start_node("kitchen", "home/kitchen")
    world.advance(1)
    world.kill("kitchen")
    start_alike(world, "home/kitchen")
    world.advance(LEASE / SECOND - 5)
    assert world.owners("home/kitchen/x") == []
    world.advance(12)
    assert world.owners("home/kitchen/x") == ["kitchen"]


def test_a_node_that_may_not_join_says_so_of_all_that_it_claims_and_ends() -> None:
    world = World()
    world.start_root(join_key=b"a secret of enough bytes")
    node = world.start_node("kitchen", "home/kitchen")
    world.advance(1)
    refused = [
        node_event.subtree for node_event in world.events("kitchen") if isinstance(node_event, Refused)
    ]
    assert refused == ["$SYS/nodes/kitchen", "home/kitchen"]
    assert node.node.has_stopped
