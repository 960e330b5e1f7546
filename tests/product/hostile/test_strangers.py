"""A real node, and ten thousand addresses that never prove themselves (§4.1)."""

from __future__ import annotations

from contextlib import ExitStack, closing
from random import Random

from hbroker._proto import packet_pb2 as pb
from tests.product.node import MIB, Node, Stranger, node_up

ADDRESSES = 10_000
AT_ONCE = 250
"""Sockets that are open at the same time, because a process may open only a few."""
FLAT = 2 * MIB


def test_ten_thousand_unproven_addresses_get_few_bytes_and_cost_no_memory() -> None:
    random = Random(7)
    with node_up() as node:
        contacts(node, random, 0, AT_ONCE)
        sessions, memory = node.status()["sessions"], node.own_bytes()
        answered = sum(contacts(node, random, i, AT_ONCE) for i in range(0, ADDRESSES, AT_ONCE))
        grown = node.own_bytes() - memory
        assert answered > ADDRESSES / 2
        assert grown < FLAT
        assert node.status()["sessions"] == sessions
        drops = node.drops()
        assert drops["address_unproven"] > ADDRESSES
        assert drops["unknown_session"] > ADDRESSES


def contacts(node: Node, random: Random, first: int, count: int) -> int:
    """Sends attempts from each of these addresses. Returns how many got an answer."""
    with ExitStack() as opened:
        hosts = [f"127.1.{number >> 8}.{number & 255}" for number in range(first, first + count)]
        strangers = [opened.enter_context(closing(Stranger(node, host))) for host in hosts]
        for stranger in strangers:
            for data in attempts(random):
                stranger.send(data)
        opened.enter_context(closing(Stranger(node))).ask()
        for stranger in strangers:
            stranger.receive()
            assert stranger.received <= 3 * stranger.sent
        return sum(stranger.received > 0 for stranger in strangers)


def attempts(random: Random) -> list[bytes]:
    """Two requests without a token, one with a forged token, and two packets of unknown sessions."""
    question = pb.PubConnect(request=random.getrandbits(64), topic="home/x")
    datagrams = [pb.Datagram(), pb.Datagram(padding=bytes(512)), pb.Datagram(), pb.Datagram(), pb.Datagram()]
    for datagram in datagrams[:3]:
        datagram.packets.add().pubconnect.CopyFrom(question)
    for datagram in datagrams[2:]:
        datagram.header.token = random.randbytes(21)
    for datagram in datagrams[3:]:
        datagram.header.session = random.getrandbits(64) or 1
        datagram.header.number = 1
        datagram.packets.add(delivery=1).publish.CopyFrom(pb.Publish(topic="home/x", payload=bytes(20)))
    return [datagram.SerializeToString() for datagram in datagrams]
