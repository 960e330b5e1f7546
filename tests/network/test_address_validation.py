"""An address that has not proved itself gets at most three times what it sent, and costs no memory (§4.1).

Strangers send to a node whatever an attacker would, from addresses of their own: requests, packets of
sessions that nobody has, with no token, random ones, and real ones of another address or another node.
After each datagram that leaves the node the two sums of its destination are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import address_of
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
