"""Queues that are longer than a node keeps in memory: `limits` bounds them, they survive SIGKILL, and are
read in order. The long form has ten million messages, and measures the node's memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import psutil
import pytest

from hbroker import sync
from tests.product.network import PATIENCE, Network, network_of
from tests.waiting import until

COUNT = 20_000
LONG_COUNT = 10_000_000
MOST_MEMORY = 64 << 20
"""The bytes that a queue may cost a node, however long it is."""
TOGETHER = 10_000
FILE = """
nodes:
  - {{name: root, subtree: "", listen: "127.0.0.1:7700", durability: {durability}}}
limits: {{queue_messages: {messages}, queue_bytes: 4294967296}}
"""


@pytest.fixture
def stored(tmp_path_factory: pytest.TempPathFactory, is_long: bool) -> Iterator[tuple[Network, str]]:
    """A node with a store, in whose queues all messages have room."""
    with node_up(tmp_path_factory.mktemp("long"), "os", 2 * (LONG_COUNT if is_long else COUNT)) as network:
        yield network


def node_up(directory: Path, durability: str, messages: int) -> AbstractContextManager[tuple[Network, str]]:
    """A node whose queues have room for so many messages."""
    return network_of(FILE.format(durability=durability, messages=messages), directory)


def client_of(root: str) -> sync.Client:
    """A client with a persistent session."""
    return sync.connect(root, client_id="long", session_expiry=3_600, session_key="k")


def publish(root: str, count: int) -> None:
    """Publishes the numbers below `count`. Each has its PUBACK."""
    with sync.connect(root) as client:
        for first in range(0, count, TOGETHER):
            numbers = range(first, first + TOGETHER)
            client.publish_many([("a/b", b"%064d" % number) for number in numbers], qos=1, timeout=PATIENCE)


def memory_of(network: Network) -> int:
    """The resident bytes of the node."""
    process: psutil.Process = network.processes()["root"]
    return process.memory_info().rss


def has_telemetry(network: Network) -> bool:
    """Whether the node has written a file of telemetry."""
    return any(network.directory.rglob("*.parquet"))


@pytest.mark.timeout(3_600)
def test_a_long_queue_survives_a_kill_and_is_read_in_order(
    stored: tuple[Network, str], is_long: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    network, root = stored
    count = LONG_COUNT if is_long else COUNT
    with client_of(root) as client:
        client.subscribe("a/#", qos=1)
    publish(root, TOGETHER)
    if is_long:  # The first file of telemetry loads code, whatever is queued.
        until(partial(has_telemetry, network), "the node writes telemetry", PATIENCE)
    before = memory_of(network)
    publish(root, count)
    memory = {"queued": memory_of(network) - before}
    began = time.monotonic()
    network.kill_node("root")
    took = {"restart": time.monotonic() - began}
    memory["restarted"] = memory_of(network) - before
    began = time.monotonic()
    with client_of(root) as client, client.subscribe("a/#", qos=1) as messages:
        assert messages.resumed
        for number in (*range(TOGETHER), *range(count)):
            message = messages.next(timeout=PATIENCE)
            assert message is not None
            assert int(message.payload) == number
            if number == 0 and "first" not in took:
                took["first"] = time.monotonic() - began
        memory["read"] = memory_of(network) - before
        assert messages.next(timeout=0.1) is None
    took["read"] = time.monotonic() - began
    if is_long:
        with capsys.disabled():
            print(f"{count} messages: MiB {[f'{k} {v / 2**20:.0f}' for k, v in memory.items()]}, s {took}")
        assert max(memory.values()) <= MOST_MEMORY


@pytest.mark.parametrize("durability", ["none", "os"])
def test_the_limits_of_a_topology_bound_a_queue(tmp_path: Path, durability: str) -> None:
    with node_up(tmp_path, durability, 1_000) as (_, root):
        with client_of(root) as client:
            client.subscribe("a/#", qos=1)
        publish(root, TOGETHER)
        with client_of(root) as client, client.subscribe("a/#", qos=1) as messages:
            for number in range(TOGETHER - 1_000, TOGETHER):
                message = messages.next(timeout=PATIENCE)
                assert message is not None
                assert int(message.payload) == number
