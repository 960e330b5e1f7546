"""A network of a thousand nodes behind the API (`make soak`): how large the answers are, and how long they
take."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from typing import cast

import pytest

from hbroker._native import Message
from hbroker.http_api.routes.metrics import scrape_of
from hbroker.metrics.families import FAMILIES
from hbroker.operations.live_network import LiveNetwork
from hbroker.runtime.client.async_client import Connecting
from tests.http_api.test_live_network import Sent

NODES = 1_000
MOST_SCRAPE_S = 0.1
MOST_SCRAPE_BYTES = 1 << 20
"""As it is sent: Prometheus accepts gzip."""


@pytest.mark.usefixtures("in_long_form")
def test_a_scrape_of_a_thousand_nodes() -> None:
    live = LiveNetwork(cast(Callable[[], Connecting], None))
    for number in range(NODES):
        feed(live, f"node-{number:04}", number)
    seconds = []
    for _ in range(7):
        began = time.perf_counter()
        text, _ = scrape_of(live, "application/openmetrics-text")
        seconds.append(time.perf_counter() - began)
    assert text.count(b"\nhbroker_node_up{") == NODES
    assert len(gzip.compress(text)) < MOST_SCRAPE_BYTES
    assert min(seconds) < MOST_SCRAPE_S


def feed(live: LiveNetwork, name: str, number: int) -> None:
    status = {family.key: 123_456_789 for family in FAMILIES} | {
        "name": name,
        "subtree": f"city/district-{number // 50}/house-{number}",
        "parent": "root",
        "address": f"10.0.{number // 250}.{number % 250}:7700",
        "drops": {"queue_full": 3, "forged": 0},
    }
    counts = {"messages_in": 3, "messages_out": 4, "bytes_in": 5, "bytes_out": 6}
    topics = [{"topic": f"city/district-{number // 50}/{each}", **counts} for each in range(20)]
    for leaf, content in (
        ("status", status),
        ("topics", {"name": name, "seconds": 10, "topics": topics, "others": counts}),
    ):
        message = Sent(f"$SYS/nodes/{name}/{leaf}", json.dumps(content).encode())
        live._take(cast(Message, message), time.monotonic())
