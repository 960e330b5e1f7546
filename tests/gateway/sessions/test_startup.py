"""A gateway starts: it takes no client before it has the records of all existing sessions."""

from __future__ import annotations

from typing import Final

import pytest

from hbroker.gateway.sessions.startup import end_mark_topic
from tests.gateway.networks import SECOND, FakeGateway
from tests.network.networks import Tree

CLIENTS: Final = 600


@pytest.fixture
def tree() -> Tree:
    """A network with the records of many sessions, whose gateway is dead."""
    tree = Tree.grow(seed=1)
    gateway = FakeGateway(tree, "one").ready()
    for number in range(CLIENTS):
        gateway.connect(f"client{number}", session_expiry_s=1_000).subscribe("t")
    tree.world.run(SECOND)
    gateway.kill()
    return tree


def test_a_gateway_waits_for_an_owner_that_pauses_between_the_records(tree: Tree) -> None:
    gateway = FakeGateway(tree, "two")
    records = gateway.control._context.records
    tree.world.run_until(lambda: len(records) > CLIENTS // 4)
    assert len(records) < CLIENTS, "the owner paused too late for this test"
    tree.root.suspend()
    tree.world.run(2 * SECOND)
    assert not gateway.control.is_ready
    tree.root.resume()
    tree.world.run_until(lambda: gateway.control.is_ready)
    assert len(records) == CLIENTS
    assert gateway.connect("client7", clean_start=False, session_expiry_s=1_000).is_present


def test_a_gateway_leaves_no_end_mark_behind(tree: Tree) -> None:
    gateway = FakeGateway(tree, "two").ready()
    tree.world.run(SECOND)
    client = gateway.connect("client")
    client.subscribe(end_mark_topic("two"))
    tree.world.run(SECOND)
    assert client.taken == []


def test_a_gateway_starts_although_the_owner_keeps_no_end_mark() -> None:
    tree = Tree.grow(seed=1)
    gateway = FakeGateway(tree, "one")
    gateway.control._startup.handle_retained = lambda *_: None  # type: ignore[method-assign]
    tree.world.run(5 * SECOND)
    assert not gateway.control.is_ready
    gateway.ready().connect("client")
    event = gateway.control.poll_event()
    assert event is not None
    assert event.name == "started_without_mark"
