"""A message larger than a datagram, in a network that loses datagrams and changes owners (§7.5)."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.results import Published, Subscribed
from hbroker.sim.network import Datagram
from hbroker.sim.network.paths import Bottleneck, Faults
from tests.network.networks import Tree

TOPIC = "home/kitchen/camera"
LOSSY = Faults(loss=0.02, duplication=0.02)
BANDWIDTH_BPS = 8_000_000
"""Bits per second of the publisher's line. The message takes a second, so that the loss of one JOIN (250
ms) does not matter."""


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_large_message_arrives_whole_although_its_owner_changes_half_way(seed: int, qos: int) -> None:
    tree = Tree.grow(seed, faults=LOSSY)
    subscriber, publisher = tree.client("subscriber"), tree.client("publisher")
    narrow = replace(LOSSY, bottleneck=Bottleneck(BANDWIDTH_BPS, queue_bytes=50_000))

    def path(datagram: Datagram) -> Faults:
        return narrow if datagram.source == publisher.address else LOSSY

    tree.world.path = path
    subscriber.subscribe("home/#", qos=qos)
    tree.world.run_until(lambda: any(isinstance(result, Subscribed) for result in subscriber.results))
    payloads = [b"first", random.Random(seed).randbytes(1_000_000), b"last"]
    for payload in payloads:
        assert publisher.publish(TOPIC, payload, qos=qos) is not None
    tree.world.run_until(lambda: subscriber.engine.counters()["datagrams_in"] > 60)
    kitchen = tree.join("home/kitchen")
    tree.world.run_until(lambda: sum(isinstance(o, Published) for o in publisher.results) == len(payloads))
    told = {result.reason for result in publisher.results if isinstance(result, Published)}
    assert told == {pb.REASON_SUCCESS}
    came = [message.payload for message in subscriber.messages]
    assert [payload for payload in came if len(payload) > 5] == payloads[1:2]
    assert (came[0], came[-1]) == (b"first", b"last")
    assert qos == 1 or came == payloads
    assert kitchen.engine.counters()["messages_in"] > 50, "much of it went by the new owner"
