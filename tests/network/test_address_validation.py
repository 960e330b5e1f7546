"""An unproven address gets at most three times the bytes that it sent, and costs no memory (§4.1).

Strangers send to a node what an attacker would send, from addresses of their own: requests and packets of
unknown sessions, without a token, with a random one, or with a real one of another address or node. After
each datagram that leaves the node, the bytes to and from its destination are compared.
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
def test_strangers_get_at_most_three_times_the_bytes_that_they_sent(seed: int) -> None:
    tree = Tree.grow(seed, ["home"])
    for target in (tree.root, tree.nodes["home"]):
        before = tree.world.hosts.keys() | tree.brokers()
        gauges = memory_gauges(tree, target.address)
        traffic = StrangerTraffic(tree, target.address)
        for source, datagram in hostile_datagrams(Random(seed), tree):
            assert source not in before
            traffic.send(source, datagram)
        tree.world.run(1_000_000)
        assert traffic.answered > DATAGRAMS / 100, "a node that answers nobody proves nothing"
        assert memory_gauges(tree, target.address) == gauges


def test_a_token_is_valid_for_one_address_and_a_limited_time() -> None:
    tree = Tree.grow(1)
    traffic = StrangerTraffic(tree, tree.root.address)
    here, elsewhere, same_host = ("192.0.2.1", 4_000), ("192.0.2.2", 4_000), ("192.0.2.1", 4_001)
    token = traffic.challenge(here)
    request = pubconnect(token)
    for source in (elsewhere, same_host):
        assert traffic.send(source, request) == ["challenge"]
    assert traffic.send(here, request) == ["pubaccept"]
    tree.world.run(121_000_000)
    assert traffic.send(here, request) == ["challenge"]


class StrangerTraffic:
    """The bytes between strangers and one node."""

    def __init__(self, tree: Tree, node: Address) -> None:
        self._world = tree.world
        self._node = node
        self._received: Counter[Address] = Counter()
        self._sent: Counter[Address] = Counter()
        self._answers: list[Datagram] = []
        self._own = set(tree.world.hosts)
        self.answered = 0
        tree.world.on_datagram = self._watch

    def send(self, source: Address, datagram: pb.Datagram | bytes) -> list[str]:
        """Sends from a stranger. Returns the kinds of the packets that come back within a millisecond."""
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


def memory_gauges(tree: Tree, node: Address) -> dict[str, int]:
    """The node's gauges of what it stores in memory."""
    counters = tree.world.hosts[node].engine.counters()
    return {name: counters[name] for name in ("links", "sessions", "subscriptions", "retained")}


def hostile_datagrams(random: Random, tree: Tree) -> Iterator[tuple[Address, bytes]]:
    """Datagrams of strangers."""
    strangers = [(f"198.51.100.{i}", random.randrange(1, 65_536)) for i in range(STRANGERS)]
    proofs = [
        token
        for host in tree.world.hosts.values()
        for token in tokens_of_others(host.engine.token_for, random)
    ]
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


def tokens_of_others(token_for: object, random: Random) -> list[bytes]:
    """Real tokens of a host, for addresses that no stranger has."""
    assert callable(token_for)
    return [token_for((f"203.0.113.{random.randrange(256)}", random.randrange(1, 65_536))) for _ in range(20)]


def fill(random: Random, packet: pb.Packet) -> None:
    """Fills in a packet of a kind that might be answered."""
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
    """A request in a datagram of the required size."""
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
"""The fewest bytes with which a child can name an address."""


class NewOwner:
    """A node that was handed a session and has many messages for its client, and the datagrams that it
    sends."""

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

    def receive(self, source: Address, **header: Any) -> None:
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
        """The token that the client reads in the first datagram."""
        return pb.Datagram.FromString(self.sent[0][1]).header.token


def test_an_address_that_a_child_named_gets_one_small_datagram() -> None:
    new_owner = NewOwner()
    new_owner.run(30_000_000)
    assert [address for address, _ in new_owner.sent] == [CLIENT]
    assert new_owner.bytes_to(CLIENT) <= AMPLIFICATION * LEAST_NAMED


def test_a_client_that_answers_from_the_named_address_gets_its_messages() -> None:
    new_owner = NewOwner()
    new_owner.receive(CLIENT, number=1, token=new_owner.token)
    kinds = [p.WhichOneof("body") for _, data in new_owner.sent for p in pb.Datagram.FromString(data).packets]
    assert kinds[0] == "ping"
    assert "suback" in kinds
    assert kinds.count("publish") == 5


def test_a_token_of_another_address_does_not_prove_the_named_one() -> None:
    new_owner = NewOwner()
    own = new_owner.node.token_for(ATTACKER)
    first = new_owner.bytes_to(CLIENT)
    ack = pb.Ack(largest=1)
    for header in (
        {"token": own},
        {"number": 1, "ack": pb.Ack(largest=10**9), "token": own},
        {"number": 2, "ack": ack},
    ):
        new_owner.receive(ATTACKER, **header)
        new_owner.receive(CLIENT, **{**header, "token": b""})
        new_owner.run(100_000)
    answered = new_owner.bytes_to(CLIENT) - first
    assert answered <= AMPLIFICATION * 3 * 64, "what answers a datagram is no longer than that"
    assert max(len(data) for to, data in new_owner.sent if to == CLIENT) <= 200
