"""A million hostile datagrams to a node that serves other clients.

They are random, odd, truncated, mutated and spliced. Python's protobuf decodes each one too, so that the
node's count of malformed datagrams can be compared with an independent count. Every few hundred datagrams the
sender sends a request and waits for the answer. So nothing overflows on the way, and every datagram counts.
"""

from __future__ import annotations

import os
from contextlib import closing
from random import Random
from typing import Any, cast

import pytest
from google.protobuf.message import DecodeError

from hbroker import sync
from hbroker._proto import packet_pb2 as pb
from tests.native import datagrams
from tests.product.hostile.loss_check import LossCheck
from tests.product.node import MIB, Node, Stranger, node_up

DATAGRAMS = int(os.environ.get("HBROKER_HOSTILE_DATAGRAMS", "1000000"))
CORPUS = 20_000
BATCH = 400
SENDERS = 8
TOLERANCE = 20 * MIB
LARGEST = 60_000


@pytest.mark.timeout(300)
def test_a_million_hostile_datagrams_change_nothing() -> None:
    random = Random(2)
    packets = corpus(random)
    with node_up() as node:
        flood(node, random, packets, 10 * BATCH)
        before, memory = counts(node), node.own_bytes()
        with LossCheck(node.root) as loss_check:
            malformed = flood(node, random, packets, DATAGRAMS)
            loss_check.await_published(10)
        after, grown = counts(node), node.own_bytes() - memory
        loss_check.verify()
        assert grown < TOLERANCE
        assert after["drops"]["malformed"] - before["drops"].get("malformed", 0) == malformed
        assert after["datagrams_in"] - before["datagrams_in"] >= DATAGRAMS
        assert after["drops"].get("receive_overflow", 0) == 0
        assert {"malformed", "unknown_session", "address_unproven", "unexpected_packet"} <= set(
            after["drops"]
        )
        serves_newcomers(node)


def corpus(random: Random) -> list[bytes]:
    """The datagrams to vary: valid, odd, broken and random ones."""
    valid = [datagrams.datagram(random).SerializeToString() for _ in range(CORPUS // 5)]
    odd = [datagrams.odd_datagram(random) for _ in range(CORPUS // 5)]
    broken = [datagrams.mutated(random, random.choice(valid), random.choice(odd)) for _ in range(CORPUS // 5)]
    short = [data[: random.randrange(len(data) + 1)] for data in random.sample(valid + odd, CORPUS // 5)]
    noise = [random.randbytes(random.choice((1, 8, 40, 1_200))) for _ in range(CORPUS // 5)]
    large = [b"\x12" + datagrams.varint(LARGEST) + b"\x43" * LARGEST, b"\0" * LARGEST]
    everything = [data for data in (*valid, *odd, *broken, *short, *noise, *large) if 0 < len(data) <= 65_000]
    random.shuffle(everything)
    return everything


def flood(node: Node, random: Random, packets: list[bytes], count: int) -> int:
    """Sends `count` variations. Returns how many of them protobuf refuses."""
    malformed = 0
    senders = [Stranger(node) for _ in range(SENDERS)]
    with closing(Stranger(node)) as asking:
        for first in range(0, count, BATCH):
            sender = senders[first // BATCH % SENDERS]
            start = random.randrange(len(packets))
            for data in (packets[(start + i) % len(packets)] for i in range(min(BATCH, count - first))):
                varied = vary(random, data)
                malformed += not is_datagram(varied)
                sender.send(varied)
            sender.receive()
            asking.ask()
    for sender in senders:
        sender.close()
    return malformed


def vary(random: Random, data: bytes) -> bytes:
    """Replaces one byte, possibly by the same value."""
    choice = random.random()
    if choice < 0.3:
        return data
    at = int(choice * 1e6) % len(data)
    return b"%b%c%b" % (data[:at], int(choice * 1e9) & 255, data[at + 1 :])


def is_datagram(data: bytes) -> bool:
    try:
        pb.Datagram.FromString(data)
    except DecodeError:
        return False
    return True


def counts(node: Node) -> dict[str, Any]:
    """The counters of datagrams in `hbroker tree --json`."""
    status = node.status()
    counters = cast(dict[str, int], status["counters"])
    return {"drops": status["drops"], "datagrams_in": counters["datagrams_in"]}


def serves_newcomers(node: Node) -> None:
    """Checks that a new client can publish and receive."""
    with sync.connect(node.root) as client, client.subscribe("new/#", qos=1) as messages:
        client.publish("new/comer", b"hello", qos=1)
        message = messages.next(timeout=10)
        assert message is not None
        assert message.payload == b"hello"
