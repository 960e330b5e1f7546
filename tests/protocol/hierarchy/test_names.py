"""Names are unique (§5.1): a second node of the same name gets no claim until the first is gone."""

from __future__ import annotations

from hbroker.config import NodeSettings
from hbroker.protocol.events import NameTaken, Refused
from hbroker.protocol.packets import Address
from hbroker.protocol.timers import LEASE, SECOND
from tests.protocol.world import ROOT, Running, World

ELSEWHERE: Address = ("10.0.7.7", 7700)


def start_same_name(world: World, subtree: str) -> Running:
    """Starts another node called `kitchen`, at another address. The world then knows the first one as
    `first`."""
    world.nodes["first"] = world.nodes["kitchen"]
    return world._start(NodeSettings("kitchen", subtree, ELSEWHERE, ROOT))


def test_a_second_node_of_the_same_name_owns_nothing_and_reports_it_once() -> None:
    world = World()
    world.start_root()
    first = world.start_node("kitchen", "home/kitchen")
    world.advance(1)
    second = start_same_name(world, "garden")
    world.advance(30)
    assert world.owners("garden/x") == ["root"]
    assert world.owners("home/kitchen/x") == ["first"]
    assert not second.node.is_serving
    assert not second.node.has_stopped, "the first may leave"
    told = world.events("kitchen")
    assert told == [NameTaken("$SYS/nodes/kitchen", "kitchen", first.settings.listen)], "once"


def test_the_second_node_of_a_name_joins_when_the_first_has_left() -> None:
    world = World()
    world.start_root()
    world.start_node("kitchen", "home/kitchen")
    world.advance(1)
    start_same_name(world, "garden")
    world.advance(5)
    world.leave("first")
    world.advance(6)
    assert world.owners("garden/x") == ["kitchen"]


def test_a_node_that_restarts_at_another_address_waits_until_the_lease_of_its_earlier_run_has_ended() -> None:
    world = World()
    world.start_root()
    world.start_node("kitchen", "home/kitchen")
    world.advance(1)
    world.kill("kitchen")
    start_same_name(world, "home/kitchen")
    world.advance(LEASE / SECOND - 5)
    assert world.owners("home/kitchen/x") == []
    world.advance(12)
    assert world.owners("home/kitchen/x") == ["kitchen"]


def test_a_node_that_is_not_authorized_reports_each_of_its_claims_and_stops() -> None:
    world = World()
    world.start_root(join_key=b"a secret of enough bytes")
    node = world.start_node("kitchen", "home/kitchen")
    world.advance(1)
    refused = [
        node_event.subtree for node_event in world.events("kitchen") if isinstance(node_event, Refused)
    ]
    assert refused == ["$SYS/nodes/kitchen", "home/kitchen"]
    assert node.node.has_stopped
