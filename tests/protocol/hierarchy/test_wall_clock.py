"""The wall clock is set while a node is down. No grant depends on it (§5.1, §5.6)."""

from __future__ import annotations

import pytest

from hbroker.protocol.events import LeaseLost
from hbroker.protocol.timers import SECOND
from tests.protocol.fake_network import Network
from tests.protocol.world import World

DAY = 24 * 3600 * SECOND


@pytest.mark.parametrize("step", [-3 * DAY, -3600 * SECOND, 3600 * SECOND, 3 * DAY])
def test_a_parent_that_restarts_with_another_wall_clock_accepts_renewals(step: int) -> None:
    world = World()
    world.start_root()
    for name, subtree in (("home", "home"), ("kitchen", "home/kitchen")):
        world.start_node(name, subtree)
        world.advance(1)
    network = world.network
    assert isinstance(network, Network)
    network.unix_offset_us = network.unix_offset_us + step
    for name in ("root", "home"):
        world.restart(name)
        world.advance(40)
    lost = [node_event for node_event in world.events("kitchen") if isinstance(node_event, LeaseLost)]
    assert not lost
    assert world.owners("home/kitchen/x") == ["kitchen"]
    world.leave("kitchen")
    world.advance(1)
    world.restart("kitchen")
    world.advance(5)
    assert world.owners("home/kitchen/x") == ["kitchen"]
    assert [subtree for subtree in network.epochs_fell if subtree] == []
