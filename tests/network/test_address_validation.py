"""An address that has not proved itself gets at most three times what it sent, and costs no memory (§4.1).

Strangers send to a node whatever an attacker would, from addresses of their own: requests, packets of
sessions that nobody has, with no token, random ones, and real ones of another address or another node.
After each datagram that leaves the node the two sums of its destination are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from hbroker._native import Config, Engine
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import address_of, pack
from hbroker.sim.network import Datagram
from tests.network.networks import Tree

AMPLIFICATION = 3
DATAGRAMS = 5_000
STRANGERS = 200

Address = tuple[str, int]


@pytest.mark.parametrize("seed", range(3))
def test_strangers_get_at_most_three_times_what_they_sent(seed: int) -> None:
    tree = Tree.grow(seed, ["home"])
    for target in (tree.root, tree.nodes["home"]):
        before = tree.world.hosts.keys() | tree.brokers()
        gauges = held(tree, target.address)
        account = Account(tree, target.address)
        for source, datagram in strange(Random(seed), tree):
            assert source not in before
            account.send(source, datagram)
        tree.world.run(1_000_000)
        assert account.answered > DATAGRAMS / 100, "a node that answers nobody proves nothing"
        assert held(tree, target.address) == gauges


def test_a_proof_counts_for_one_address_and_one_time() -> None:
    tree = Tree.grow(1)
    account = Account(tree, tree.root.address)
    here, elsewhere, same_host = ("192.0.2.1", 4_000), ("192.0.2.2", 4_000), ("192.0.2.1", 4_001)
    token = account.challenge(here)
    request = pubconnect(token)
    for source in (elsewhere, same_host):
        assert account.send(source, request) == ["challenge"]
    assert account.send(here, request) == ["pubaccept"]
    tree.world.run(121_000_000)
    assert account.send(here, request) == ["challenge"]


class Account:
    """What crosses between strangers and one node, at every moment."""

    def __init__(self, tree: Tree, node: Address) -> None:
        self._world = tree.world
        self._node = node
        self._received: Counter[Address] = Counter()
        self._sent: Counter[Address] = Counter()
        self._answers: list[Datagram] = []
        self._own = set(tree.world.hosts)
        self.answered = 0
        tree.world.watch = self._watch

    def send(self, source: Address, datagram: pb.Datagram | bytes) -> list[str]:
        """Sends from a stranger; the kinds of the packets that come back in a millisecond."""
        data = datagram if isinstance(datagram, bytes) else datagram.SerializeToString()
        self._received[source] += len(data)
        self._answers.clear()
        self._world.inject(source, self._node, data)
        self._world.run(1_000)
        return [kind for answer in self._answers if answer.destination == source for kind in answer.kinds()]

    def challenge(self, source: Address) -> bytes:
        """The token that the node gives for an address."""
        assert self.send(source, pubconnect()) == ["challenge"]
        return self._answers[-1].decode().packets[0].challenge.token

    def _watch(self, datagram: Datagram) -> None:
        if datagram.source != self._node or datagram.destination in self._own:
            return
        self._answers.append(datagram)
        self._sent[datagram.destination] += len(datagram.data)
        self.answered += 1
        stranger = datagram.destination
        assert self._sent[stranger] <= AMPLIFICATION * self._received[stranger], datagram.decode()


def held(tree: Tree, node: Address) -> dict[str, int]:
    """What a node keeps in memory, by its own gauges."""
    counters = tree.world.hosts[node].engine.counters()
    return {name: counters[name] for name in ("links", "sessions", "subscriptions", "retained")}


def strange(random: Random, tree: Tree) -> Iterator[tuple[Address, bytes]]:
    """Datagrams of strangers."""
    strangers = [(f"198.51.100.{i}", random.randrange(1, 65_536)) for i in range(STRANGERS)]
    proofs = [token for host in tree.world.hosts.values() for token in stolen(host.engine.token_for, random)]
    for _ in range(DATAGRAMS):
        datagram = pb.Datagram()
        datagram.header.incarnation = random.getrandbits(64)
        datagram.header.session = random.choice((0, 0, random.getrandbits(64)))
        datagram.header.number = random.choice((0, 1, 2, 2**64 - 1))
        datagram.header.token = random.choice((b"", random.randbytes(21), random.choice(proofs)))
        for _ in range(random.choice((0, 1, 1, 1, 3, 40))):
            fill(random, datagram.packets.add())
        data = datagram.SerializeToString()
        missing = random.randint(1, 1_200) - len(data) - 3
        if missing > 0:
            datagram.padding = bytes(missing)
            data = datagram.SerializeToString()
        data = data[: random.choice((1_200, 1_200, random.randint(1, 1_200)))]
        yield random.choice(strangers), data


def stolen(token_for: object, random: Random) -> list[bytes]:
    """Real tokens of a host, but of addresses that no stranger has."""
    assert callable(token_for)
    return [token_for((f"203.0.113.{random.randrange(256)}", random.randrange(1, 65_536))) for _ in range(20)]


def fill(random: Random, packet: pb.Packet) -> None:
    """A packet that asks for an answer, if any does."""
    victim = address_of(("203.0.113.7", 9))
    packet.delivery = random.choice((0, 1, 2))
    match random.randrange(8):
        case 0:
            packet.pubconnect.CopyFrom(pb.PubConnect(request=random.getrandbits(64), topic="home/x"))
            packet.pubconnect.mode = random.choice((pb.MODE_RECURSIVE, pb.MODE_REFERRAL))
        case 1:
            packet.subscribe.CopyFrom(pb.Subscribe(request=random.getrandbits(64), filter="#"))
        case 2:
            packet.join.CopyFrom(pb.Join(request=1, node="n", subtree="home/a", address=victim))
        case 3:
            packet.publish.CopyFrom(pb.Publish(topic="home/x", qos=pb.Qos.Name(random.randrange(3))))
        case 4:
            packet.ping.sent_at_us = 1
        case 5:
            packet.reset.CopyFrom(pb.Reset(session=random.getrandbits(64), token=random.randbytes(21)))
        case 6:
            packet.challenge.CopyFrom(pb.Challenge(token=random.randbytes(64), lifetime_s=2**32 - 1))
        case _:
            packet.joinack.CopyFrom(pb.JoinAck(request=random.getrandbits(64), subtree="home"))
    if packet.WhichOneof("body") in ("pubconnect", "subscribe", "join") and random.random() < 0.3:
        getattr(packet, packet.WhichOneof("body") or "").origin.address.CopyFrom(victim)


def pubconnect(token: bytes = b"") -> pb.Datagram:
    """A question in a datagram of the size that is asked for."""
    datagram = pb.Datagram(padding=bytes(512))
    datagram.header.token = token
    datagram.packets.add().pubconnect.CopyFrom(pb.PubConnect(request=1, topic="home"))
    return datagram


CLIENT: Address = ("192.0.2.7", 5_000)
ATTACKER: Address = ("192.0.2.66", 5_000)
SESSION = 0xABC000
LEAST_NAMED = pb.Transfer(
    subscriptions=[pb.SubscriptionRecord(filter="a", session=SESSION, address=address_of(CLIENT))]
).ByteSize()
"""Bytes with which a child names an address, at the least."""


class Adopter:
    """A node that was handed a session, with much to say to its client, and what it sends there."""

    def __init__(self) -> None:
        self.now = 1_000_000_000_000
        config = Config(node=True, session=1, incarnation=5, token_keys=[b"k" * 16], seed=1)
        self.node = Engine(config)
        self.node.handle_timeout(self.now)
        self.node.grant("", 1, True)
        self.link = self.node.adopt(SESSION, CLIENT)
        self.node.open_session(SESSION, persistent=False, queue_messages=0, queue_bytes=0)
        self.node.subscribe(SESSION, "a", 1)
        self.sent: list[tuple[Address, bytes]] = []
        for _ in range(5):
            self.node.publish("a", bytes(1_000), 1)
        assert self.node.send(self.link, pack(pb.SubAck(filter="a", active=True)))
        self.run(0)

    def run(self, microseconds: int) -> None:
        end = self.now + microseconds
        while True:
            self.sent += self.node.poll_transmit()
            due = self.node.poll_timeout()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.node.handle_timeout(self.now)
        self.now = end
        self.node.handle_timeout(end)
        self.sent += self.node.poll_transmit()

    def hear(self, source: Address, **header: Any) -> None:
        packets = [pb.Packet(pong=pb.Pong())]
        datagram = pb.Datagram(
            header=pb.Header(session=SESSION, incarnation=77, **header), packets=packets, padding=bytes(64)
        )
        self.node.handle_datagram(self.now, source, datagram.SerializeToString())
        self.run(0)

    def bytes_to(self, address: Address) -> int:
        return sum(len(data) for destination, data in self.sent if destination == address)

    @property
    def token(self) -> bytes:
        """What its client has read in the first datagram."""
        return pb.Datagram.FromString(self.sent[0][1]).header.token


def test_an_address_that_a_child_named_gets_one_small_datagram() -> None:
    adopter = Adopter()
    adopter.run(30_000_000)
    assert [address for address, _ in adopter.sent] == [CLIENT]
    assert adopter.bytes_to(CLIENT) <= AMPLIFICATION * LEAST_NAMED


def test_who_answers_from_there_gets_what_waits() -> None:
    adopter = Adopter()
    adopter.hear(CLIENT, number=1, token=adopter.token)
    kinds = [p.WhichOneof("body") for _, data in adopter.sent for p in pb.Datagram.FromString(data).packets]
    assert kinds[0] == "ping"
    assert "suback" in kinds
    assert kinds.count("publish") == 5


def test_a_proof_of_another_address_is_none_of_that_one() -> None:
    adopter = Adopter()
    own = adopter.node.token_for(ATTACKER)
    first = adopter.bytes_to(CLIENT)
    ack = pb.Ack(largest=1)
    for header in (
        {"token": own},
        {"number": 1, "ack": pb.Ack(largest=10**9), "token": own},
        {"number": 2, "ack": ack},
    ):
        adopter.hear(ATTACKER, **header)
        adopter.hear(CLIENT, **{**header, "token": b""})
        adopter.run(100_000)
    answered = adopter.bytes_to(CLIENT) - first
    assert answered <= AMPLIFICATION * 3 * 64, "what answers a datagram is no longer than that"
    assert max(len(data) for to, data in adopter.sent if to == CLIENT) <= 200
