"""A node's status can be published by that node alone (DESIGN §4.7: its counters are its own)."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from hbroker import errors, sync
from tests.product.node import node_up

STATUS = "$SYS/nodes/root/status"


def test_a_client_cannot_publish_the_status_of_a_node() -> None:
    with (
        node_up() as node,
        sync.connect(node.root) as reader,
        reader.subscribe(STATUS, qos=1) as messages,
        sync.connect(node.root) as forger,
    ):
        own = messages.next(timeout=10)
        assert own is not None
        with suppress(errors.HBrokerError):
            forger.publish(STATUS, json.dumps({"name": "root", "drops": {}}), qos=1, retain=True, timeout=10)
        with reader.subscribe(STATUS) as again:
            retained = again.next(timeout=10)
            assert retained is not None
            assert "counters" in json.loads(retained.payload)
        heard = messages.next(timeout=1)
        assert heard is None or "counters" in json.loads(heard.payload)


def test_a_client_cannot_publish_the_status_of_a_node_that_has_not_joined_yet() -> None:
    with node_up() as node, sync.connect(node.root) as forger, pytest.raises(errors.Refused):
        forger.publish("$SYS/nodes/kitchen/status", b"{}", qos=1, retain=True, timeout=10)


def test_messages_that_a_subscriber_received_at_qos_0_are_not_counted_as_dropped_when_it_leaves() -> None:
    with node_up() as node, sync.connect(node.root) as publisher:
        reader = sync.connect(node.root)
        with reader.subscribe("had/#", qos=0) as messages:
            for number in range(20):
                publisher.publish("had/x", b"%d" % number)
            assert [messages.next(timeout=10) is not None for _ in range(20)] == [True] * 20
            before = node.drops().get("session_ended", 0)
            reader.close()
        # The client that queries the status may be counted for messages that it has not acknowledged when it
        # leaves: two each time.
        assert node.drops().get("session_ended", 0) - before < 10
