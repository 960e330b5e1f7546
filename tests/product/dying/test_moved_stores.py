"""A subtree moves between nodes with stores: what waits on disk goes along, and survives SIGKILL of the new
owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbroker import sync
from tests.product.home import HomeNetwork
from tests.product.network import PATIENCE, network_of

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700", durability: fsync}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701", durability: fsync}
  - {name: garden, subtree: home/garden, listen: "127.0.0.1:7702", durability: fsync}
"""
COUNT = 3_000
"""Far more messages than a node keeps in memory for a session that is offline."""


@pytest.mark.parametrize("victim", ["garden", "kitchen"])
def test_a_long_queue_moves_and_is_there_after_a_kill(tmp_path: Path, victim: str) -> None:
    with network_of(FILE, tmp_path) as (network, root), sync.connect(root) as publisher:
        with _offline_client(root) as client:
            client.subscribe("home/kitchen/#", "home/garden/#", qos=2)
        _publish(publisher, range(COUNT))
        home = HomeNetwork(network, root)
        home.done("move", "home/kitchen", "garden")
        network.kill_node(victim)
        _publish(publisher, range(COUNT, COUNT + 10))
        with _offline_client(root) as client:
            messages = client.subscribe("home/kitchen/#", "home/garden/#", qos=2)
            assert messages.resumed
            for number in range(COUNT + 10):
                message = messages.next(timeout=PATIENCE)
                assert message is not None, f"{number} is missing"
                assert int(message.payload) == number
            assert messages.next(timeout=0.2) is None


def _offline_client(root: str) -> sync.Client:
    return sync.connect(root, client_id="offline", session_expiry=3_600, session_key="k")


def _publish(publisher: sync.Client, numbers: range) -> None:
    publisher.publish_many(
        [("home/kitchen/oven", b"%0100d" % number) for number in numbers], qos=2, timeout=PATIENCE
    )
