"""The core notices the end of a lease by itself (§5.6): a process whose control is stopped does not serve
a subtree that it has lost."""

from __future__ import annotations

import pytest

from hbroker.protocol import timers
from hbroker.protocol.events import TookBack
from hbroker.protocol.results import Published
from hbroker.sim.network import NodeHost
from tests.network.networks import Tree

TOPIC = "home/kitchen/oven"


def stall(node: NodeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops the node's control. Its engine still receives datagrams, and answers them."""
    engine = node.engine
    monkeypatch.setattr(node, "process_events", lambda: None)
    monkeypatch.setattr(node, "handle_timeout", lambda: engine.handle_timeout(node.core_clock()))
    monkeypatch.setattr(node, "poll_timeout", engine.poll_timeout)


def test_a_node_whose_control_is_stopped_refuses_messages_after_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = Tree.grow(1, ["home"])
    world, home, root = tree.world, tree.nodes["home"], tree.root
    publisher = tree.client()

    def publish() -> None:
        publisher.results.clear()
        publisher.publish(TOPIC, b"180", qos=1)
        world.run_until(lambda: any(isinstance(o, Published) for o in publisher.results))

    publish()
    assert home.engine.counters()["messages_in"] > 0
    stall(home, monkeypatch)
    stalled_at = world.now
    publish()
    served = home.engine.counters()["messages_in"]
    world.run(timers.LEASE)
    assert not any(isinstance(node_event, TookBack) for node_event in root.events), "the parent waits longer"
    publisher.publish(TOPIC, b"200", qos=1)
    world.run(timers.SECOND // 10)
    counters = home.engine.counters()
    assert counters["messages_in"] == served
    assert counters["drop.not_responsible"] > 0
    world.run_until(lambda: sum(isinstance(o, Published) for o in publisher.results) == 2)
    assert world.now - stalled_at > timers.LEASE, "it was delivered by who owns it then"
    assert home.engine.counters()["messages_in"] == served


def test_a_lease_that_is_renewed_does_not_end() -> None:
    tree = Tree.grow(2, ["home"])
    publisher = tree.client()
    tree.world.run(4 * timers.LEASE)
    publisher.publish(TOPIC, b"180", qos=1)
    tree.world.run_until(lambda: bool(publisher.results))
    assert tree.nodes["home"].engine.counters().get("drop.not_responsible", 0) == 0
