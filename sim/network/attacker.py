"""An attacker on the path between nodes: records all packets there, and later replays or forges some.

The attacks use another address than the recorded sender's, except the first:

- *again*: datagrams byte for byte, under their original source address;
- *elsewhere*: the same, under the attacker's address;
- *own*: the packets in them, in order, over the attacker's own link;
- *forged*: for a recorded lease, JOIN, LEAVE, and TRANSFER up to COMMIT, over such a link.

No attack may let the attacker hold anything: see `check`.
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


class _IdleControl:
    """A control that decides nothing."""

    def handle_event(self, now: int, event: Event) -> None:
        pass

    def handle_timeout(self, now: int) -> None:
        pass

    def poll_timeout(self) -> int | None:
        return None


class Attacker:
    """The recorded datagrams, and the attacks."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = Random(f"{seed} attacker")
        self._recorded: deque[Datagram] = deque(maxlen=KEPT)
        self._hosts: list[Host] = []

    def watch(self, datagram: Datagram) -> None:
        """Records a datagram between nodes when it leaves a host."""
        ends = (self._world.hosts.get(a) for a in (datagram.source, datagram.destination))
        if all(isinstance(end, NodeHost) for end in ends):
            kinds = {packet.WhichOneof("body") for packet in datagram.decode().packets}
            if kinds & OF_NODES:
                self._recorded.append(datagram)

    def attack(self, kind: Attack) -> Host | None:
        """Attacks a node. Returns the attacker's host, if the attack needs one."""
        if not self._recorded:
            return None
        match kind:
            case Attack.AGAIN | Attack.ELSEWHERE:
                source = self._world.new_address() if kind is Attack.ELSEWHERE else None
                for datagram in self._draw_recorded():
                    self._world.inject(source or datagram.source, datagram.destination, datagram.data)
                return None
            case Attack.OWN:
                target = self._random.choice(self._recorded).destination
                return self._send_over_link(target, self._packets(target))
            case Attack.FORGED:
                leases = list(self._leases())
                if not leases:
                    return None
                target, join = self._random.choice(leases)
                return self._send_over_link(target, _forged(join))

    def check(self, node: NodeHost) -> Iterator[str]:
        """What a node lets an attacker hold."""
        addresses = {host.address for host in self._hosts}
        for subtree, child in node.control.delegations.children.items():
            link = child.delegation.link
            if addresses and link is not None and node.engine.peer_of(link) in addresses:
                yield f"{node.settings.name} has a stranger renew {subtree!r}"

    def end(self) -> None:
        """Removes the attacker's hosts and its recordings."""
        for host in self._hosts:
            if self._world.hosts.get(host.address) is host:
                self._world.remove(host)
        self._recorded.clear()

    def _draw_recorded(self) -> list[Datagram]:
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
        """The recorded renewals, whether they are authenticated or not."""
        for datagram in self._recorded:
            for packet in datagram.decode().packets:
                inner = packet.authenticated.packet
                join = pb.Packet.FromString(inner).join if inner else packet.join
                if join.epoch:
                    yield datagram.destination, join

    def _send_over_link(self, target: Address, packets: Iterator[bytes]) -> Host:
        """Sends packets over an own link with an own session; a new token comes with RESET (§3.6)."""
        recorded = list(packets)
        host = Host(self._world, self._world.new_address(), node=True, token_key=self._random.randbytes(16))
        host.control = _IdleControl()
        self._hosts.append(host)
        self._world.add(host)
        link = host.engine.connect(target)
        for packet in recorded:
            host.engine.send(link, packet)
        self._world.drive(host)
        return host


def _forged(join: pb.Join) -> Iterator[bytes]:
    """All packets by which a child hands its subtree back to its parent."""
    renewal = pb.Join()
    renewal.CopyFrom(join)
    yield pack(renewal)
    yield pack(pb.Leave(subtree=join.subtree, epoch=join.epoch))
    message = pb.Publish(topic=f"{join.subtree}/forged", payload=b"!", retain=True).SerializeToString()
    yield pack(pb.Transfer(subtree=join.subtree, epoch=join.epoch, last=True, retained=[message]))
    yield pack(pb.Transfer(subtree=join.subtree, epoch=join.epoch, phase=pb.TRANSFER_PHASE_COMMIT))
