"""Somebody on the path between nodes: reads all that passes there, and says it again later, or makes it up.

What is tried, each from another address than that of whom it came from:

- *again*: datagrams byte for byte, under the source that they had;
- *elsewhere*: the same, under the attacker's own;
- *own*: the packets in them, in order, over a link of the attacker's own;
- *forged*: for a lease seen on its way, JOIN, LEAVE, and TRANSFER up to COMMIT, over such a link.

Whatever is tried, nobody may hold anything by it: see `look`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import Event
from hbroker.protocol.packets import pack

from .hosts import Host, NodeHost
from .world import Address, Datagram, World

__all__ = ["Attack", "Attacker"]

KEPT: Final = 400
OF_NODES: Final = frozenset({"authenticated", "join", "joinack", "leave", "transfer"})


class Attack(Enum):
    AGAIN = "again"
    ELSEWHERE = "elsewhere"
    OWN = "own"
    FORGED = "forged"


class _Silence:
    """Decides nothing."""

    def handle_event(self, now: int, event: Event) -> None:
        pass

    def handle_timeout(self, now: int) -> None:
        pass

    def poll_timeout(self) -> int | None:
        return None


class Attacker:
    """What was recorded, and what is done with it."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = Random(f"{seed} attacker")
        self._recorded: deque[Datagram] = deque(maxlen=KEPT)
        self._hosts: list[Host] = []

    def watch(self, datagram: Datagram) -> None:
        """A datagram leaves a host."""
        ends = (self._world.hosts.get(a) for a in (datagram.source, datagram.destination))
        if all(isinstance(end, NodeHost) for end in ends):
            kinds = {packet.WhichOneof("body") for packet in datagram.decode().packets}
            if kinds & OF_NODES:
                self._recorded.append(datagram)

    def attack(self, kind: Attack) -> Host | None:
        """Attacks a node; the host that does, where it takes one."""
        if not self._recorded:
            return None
        match kind:
            case Attack.AGAIN | Attack.ELSEWHERE:
                source = self._world.new_address() if kind is Attack.ELSEWHERE else None
                for datagram in self._some():
                    self._world.inject(source or datagram.source, datagram.destination, datagram.data)
                return None
            case Attack.OWN:
                target = self._random.choice(self._recorded).destination
                return self._speak(target, self._packets(target))
            case Attack.FORGED:
                leases = list(self._leases())
                if not leases:
                    return None
                target, join = self._random.choice(leases)
                return self._speak(target, _forged(join))

    def look(self, node: NodeHost) -> Iterator[str]:
        """What a node lets an attacker hold."""
        addresses = {host.address for host in self._hosts}
        for subtree, child in node.control.delegations.children.items():
            link = child.delegation.link
            if addresses and link is not None and node.engine.peer_of(link) in addresses:
                yield f"{node.settings.name} has a stranger renew {subtree!r}"

    def end(self) -> None:
        """Goes away."""
        for host in self._hosts:
            if self._world.hosts.get(host.address) is host:
                self._world.remove(host)
        self._recorded.clear()

    def _some(self) -> list[Datagram]:
        count = min(len(self._recorded), self._random.choice((1, 5, 50, KEPT)))
        first = self._random.randint(0, len(self._recorded) - count)
        return list(self._recorded)[first : first + count]

    def _packets(self, target: Address) -> Iterator[bytes]:
        for datagram in self._recorded:
            if datagram.destination == target:
                for packet in datagram.decode().packets:
                    if packet.WhichOneof("body") in OF_NODES:
                        packet.delivery = packet.after = 0
                        yield packet.SerializeToString()

    def _leases(self) -> Iterator[tuple[Address, pb.Join]]:
        """Renewals that were seen, whether they are proved or not."""
        for datagram in self._recorded:
            for packet in datagram.decode().packets:
                inner = packet.authenticated.packet
                join = pb.Packet.FromString(inner).join if inner else packet.join
                if join.epoch:
                    yield datagram.destination, join

    def _speak(self, target: Address, packets: Iterator[bytes]) -> Host:
        """With a link and a session of its own; a new token comes by RESET (§3.6)."""
        said = list(packets)
        host = Host(self._world, self._world.new_address(), node=True, token_key=self._random.randbytes(16))
        host.control = _Silence()
        self._hosts.append(host)
        self._world.add(host)
        link = host.engine.connect(target)
        for packet in said:
            host.engine.send(link, packet)
        self._world.settle(host)
        return host


def _forged(join: pb.Join) -> Iterator[bytes]:
    """A child's whole way back to its parent."""
    renewal = pb.Join()
    renewal.CopyFrom(join)
    yield pack(renewal)
    yield pack(pb.Leave(subtree=join.subtree, epoch=join.epoch))
    message = pb.Publish(topic=f"{join.subtree}/forged", payload=b"!", retain=True).SerializeToString()
    yield pack(pb.Transfer(subtree=join.subtree, epoch=join.epoch, last=True, retained=[message]))
    yield pack(pb.Transfer(subtree=join.subtree, epoch=join.epoch, phase=pb.TRANSFER_PHASE_COMMIT))
