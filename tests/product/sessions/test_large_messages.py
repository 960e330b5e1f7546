"""A large message crosses a node fragment by fragment: the node stores none of it, and the publisher makes
no copy (§7.5)."""

from __future__ import annotations

import hashlib
import random

import pytest

from hbroker import errors, sync
from tests.memory import own_bytes
from tests.product.network import PATIENCE
from tests.product.node import MIB, node_up

SIZE = 20 * MIB


@pytest.mark.parametrize("qos", [1, 2])
def test_a_large_message_reaches_two_subscribers_and_leaves_nothing_in_the_nodes_memory(qos: int) -> None:
    payload = random.Random(qos).randbytes(SIZE)
    with (
        node_up() as node,
        sync.connect(node.root) as one,
        sync.connect(node.root) as other,
        sync.connect(node.root) as publisher,
        one.subscribe("camera/#", qos=qos) as first,
        other.subscribe("camera/#", qos=qos) as second,
    ):
        publisher.publish("camera/1", b"small", qos=qos, timeout=PATIENCE)
        before = node.own_bytes()
        publisher.publish("camera/1", payload, qos=qos, timeout=PATIENCE)
        publisher.publish("camera/1", b"small again", qos=qos, timeout=PATIENCE)
        for messages in (first, second):
            came = [messages.next(timeout=PATIENCE) for _ in range(3)]
            assert [message and len(message.payload) for message in came] == [5, SIZE, 11]
            large = came[1]
            assert large is not None
            assert hashlib.sha256(large.payload).digest() == hashlib.sha256(payload).digest()
            assert large.topic == "camera/1"
        assert node.own_bytes() - before < 32 * MIB


def test_the_publisher_does_not_copy_a_large_message() -> None:
    payload = bytes(64 * MIB)
    with node_up() as node, sync.connect(node.root) as publisher:
        publisher.publish("camera/1", b"small", qos=1, timeout=PATIENCE)
        before = own_bytes()
        publisher.try_publish("camera/1", payload, qos=1)
        most = before
        while not publisher.drain(0.02):
            most = max(most, own_bytes())
        assert publisher.counters()["messages_out"] > 50_000
        assert most - before < 24 * MIB


def test_a_message_above_the_maximum_size_is_refused() -> None:
    with node_up() as node, sync.connect(node.root) as publisher:
        with pytest.raises(errors.PayloadTooLarge, match="268435457 bytes"):
            publisher.publish("camera/1", bytes(256 * MIB + 1), qos=1)
        with pytest.raises(errors.PayloadTooLarge):
            publisher.publish("camera/1", b"", qos=1, content_type="x" * 65_000)
