"""The receipt of a message without a subscriber, and of a message on a topic without permission
(§7.2, §7.3)."""

from __future__ import annotations

import pytest

from hbroker import sync
from hbroker._proto.packet_pb2 import Reason
from hbroker.errors import Refused
from tests.product.node import node_up

DISTRIBUTED = Reason.REASON_SUCCESS
UNMATCHED = Reason.REASON_NO_MATCHING_SUBSCRIBERS


@pytest.mark.parametrize("qos", [1, 2])
def test_a_receipt_says_whether_there_was_a_matching_subscriber(qos: int) -> None:
    with node_up() as node, sync.connect(node.root) as publisher, sync.connect(node.root) as reader:
        assert publisher.publish("a/b", b"1", qos=qos, timeout=10).reason == UNMATCHED
        with reader.subscribe("a/+", qos=0) as messages:
            assert publisher.publish("a/b", b"2", qos=qos, timeout=10).reason == DISTRIBUTED
            assert publisher.publish("a", b"3", qos=qos, timeout=10).reason == UNMATCHED
            heard = messages.next(timeout=10)
            assert heard is not None
            assert heard.payload == b"2"
        assert publisher.publish("a/b", b"4", qos=qos, timeout=10).reason == UNMATCHED


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_to_the_status_topic_of_a_node_is_refused(qos: int) -> None:
    with node_up() as node, sync.connect(node.root) as forger:
        with pytest.raises(Refused, match="NOT_AUTHORIZED") as refused:
            forger.publish("$SYS/nodes/root/status", b"{}", qos=qos, timeout=10)
        assert refused.value.reason == Reason.REASON_NOT_AUTHORIZED
        assert forger.publish("$SYS/other", qos=qos, timeout=10).reason == UNMATCHED
