"""A hostile peer with a valid token and an open session, beside an honest client.

The peer speaks the protocol with protobuf alone, so that it can send what no client of the project would
send: acknowledgements of datagrams that were never sent, deliveries outside of any window, requests in the
name of others, floods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from random import Random

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import address_of
from tests.product.hostile.loss_check import LossCheck
from tests.product.hostile.test_hostile_datagrams import serves_newcomers
from tests.product.node import MIB, Node, Stranger, node_up
from tests.product.peer import Peer

ROUNDS = 150
PEERS = 8
TOLERANCE = 20 * MIB
MOST = 2**64 - 1
DEEP = "/".join("x" * 32_000)


def forged_acknowledgements(peer: Peer) -> None:
    for largest, ranges in ((MOST, [MOST]), (MOST, [0, MOST] * 300), (1, [MOST]), (2**63, [2**62, 0] * 500)):
        peer.send_packets(
            pb.Packet(ping=pb.Ping()), ack=pb.Ack(largest=largest, delay_us=MOST, ranges=ranges)
        )


def forged_pubacks(peer: Peer) -> None:
    for ranges in ([1, MOST], [MOST, MOST], [0, MOST] * 200, [1]):
        peer.send_packets(pb.Packet(puback=pb.PubAck(ranges=ranges, topic="x" * 1_000)))


def deliveries_out_of_place(peer: Peer) -> None:
    ahead = peer.random.choice((5_000, 2**32, MOST))
    message = publish(peer.random)
    for delivery, after in ((ahead, 0), (peer._delivery + 2, MOST), (1, 0), (1, 0), (MOST, MOST)):
        peer.send_packets(pb.Packet(delivery=delivery, after=after, publish=message))
    peer.send_packets(pb.Packet(ping=pb.Ping()), number=1)
    peer.send_packets(pb.Packet(ping=pb.Ping()), number=MOST)


def deliveries_after_a_missing_one(peer: Peer) -> None:
    """Deliveries that wait for one that never arrives."""
    for ahead in range(2, 40):
        packet = pb.Packet(delivery=peer._delivery + ahead, after=peer._delivery + 1)
        packet.publish.CopyFrom(publish(peer.random, size=1_000))
        peer.send_packets(packet)


def forged_joins(peer: Peer) -> None:
    name = f"n{peer.random.randrange(10_000)}"
    subtrees = ("hostile", "hostile/a", "hostile/a/b", "$SYS", "$SYS/nodes/root", "$SYS/nodes", "+", "a//b/")
    for subtree in subtrees:
        for epoch in (0, 1, 2**63, MOST):
            join = pb.Join(request=1, node=name, subtree=subtree, epoch=epoch, incarnation=1)
            join.address.CopyFrom(address_of(("203.0.113.9", 9)))
            peer.send_deliveries(pb.Packet(join=join))


def distinct_filters(peer: Peer) -> None:
    for _ in range(30):
        filters = (f"flood/{peer.random.getrandbits(64)}/+/#" for _ in range(20))
        peer.send_deliveries(*(pb.Packet(subscribe=pb.Subscribe(request=1, filter=text)) for text in filters))
    peer.await_answer()


def deep_filters(peer: Peer) -> None:
    for _ in range(3):
        text = f"{DEEP[:-12]}/{peer.random.getrandbits(32)}"
        peer.send_deliveries(pb.Packet(subscribe=pb.Subscribe(request=1, filter=text)))
    peer.await_answer()


def packets_out_of_place(peer: Peer) -> None:
    own, origin = address_of(("127.0.0.1", 9)), pb.Origin(address=address_of(("203.0.113.9", 9)), hops=3)
    record = pb.SubscriptionRecord(filter="#", session=5, address=own)
    peer.send_deliveries(
        pb.Packet(transfer=pb.Transfer(subtree="", epoch=MOST, subscriptions=[record] * 5)),
        *(
            pb.Packet(transfer=pb.Transfer(subtree="hostile", phase=pb.TransferPhase.Name(i)))
            for i in range(4)
        ),
        pb.Packet(joinack=pb.JoinAck(request=1, subtree="hostile", epoch=MOST)),
        pb.Packet(leave=pb.Leave(subtree="hostile", epoch=MOST)),
        pb.Packet(pubaccept=pb.PubAccept(request=1)),
        pb.Packet(suback=pb.SubAck(request=1, active=True)),
        pb.Packet(unsubscribe=pb.Unsubscribe(request=1, filter="never/made")),
        pb.Packet(subscribe=pb.Subscribe(request=1, filter="#", origin=origin)),
        pb.Packet(pubconnect=pb.PubConnect(request=1, topic="a", origin=origin)),
        pb.Packet(challenge=pb.Challenge(token=b"x" * 60)),
        pb.Packet(reset=pb.Reset(session=peer._session)),
        pb.Packet(),
    )


def retained_flood(peer: Peer) -> None:
    """Messages to a few topics, so that little is retained, but it changes again and again."""
    for _ in range(20):
        message = publish(peer.random, size=1_000)
        message.topic, message.retain = f"retained/{peer.random.randrange(20)}", True
        peer.send_deliveries(pb.Packet(publish=message))


def broken_messages(peer: Peer) -> None:
    fragments = (pb.Fragment(index=9, count=3, total=5), pb.Fragment(count=2**32 - 1, total=MOST))
    for message in (
        pb.Publish(topic="a/#"),
        pb.Publish(topic=""),
        pb.Publish(topic="a\0b"),
        *(pb.Publish(topic="a", fragment=fragment, payload=b"x") for fragment in fragments),
    ):
        message.qos = pb.QOS_AT_LEAST_ONCE
        peer.send_deliveries(pb.Packet(publish=message))


ATTACKS: tuple[Callable[[Peer], None], ...] = (
    forged_acknowledgements,
    forged_pubacks,
    deliveries_out_of_place,
    deliveries_after_a_missing_one,
    forged_joins,
    distinct_filters,
    deep_filters,
    packets_out_of_place,
    retained_flood,
    broken_messages,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_hostile_session_affects_nobody_else(attack: Callable[[Peer], None]) -> None:
    random = Random(3)
    with node_up() as node:
        serves_newcomers(node)
        memory = node.own_bytes()
        with LossCheck(node.root) as loss_check, closing(Stranger(node)) as asking:
            for peer in peers(node, random):
                for _ in range(ROUNDS // PEERS):
                    attack(peer)
                    asking.ask()
                peer.leave()
                peer.close()
            loss_check.await_published(10)
        loss_check.verify()
        serves_newcomers(node)
        assert node.own_bytes() - memory < TOLERANCE
        assert all(count > 0 for count in node.drops().values())


def peers(node: Node, random: Random) -> Iterator[Peer]:
    for _ in range(PEERS):
        yield Peer(node, random)


def publish(random: Random, size: int = 10) -> pb.Publish:
    """A message of a new publisher."""
    message = pb.Publish(topic="hostile/x", payload=bytes(size), publisher=random.getrandbits(64))
    message.sequence = random.choice((0, 1, MOST))
    message.qos = random.choice((pb.QOS_AT_MOST_ONCE, pb.QOS_AT_LEAST_ONCE, pb.QOS_EXACTLY_ONCE))
    return message


def test_the_filters_of_a_session_are_bounded() -> None:
    with (
        node_up("--subscriptions", "1000") as node,
        closing(Stranger(node)) as asking,
        closing(Peer(node, Random(3))) as peer,
    ):
        for _ in range(5):
            distinct_filters(peer)
            deep_filters(peer)
            asking.ask()
        assert node.status()["subscriptions"] == 1_000
        serves_newcomers(node)
