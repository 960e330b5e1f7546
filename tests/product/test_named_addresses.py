"""A child that hands back names an address for its subscribers that never sent anything (§4.5)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from hbroker import sync
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import address_of
from tests.product.network import PATIENCE
from tests.product.node import node_up
from tests.product.peer import Intruder
from tests.waiting import until

SUBTREE = "named"
MESSAGES = 5
LARGE = bytes(1_000)
AT_ONCE = 8
"""Records in one TRANSFER."""
ONE_DATAGRAM = 60
"""The largest size of the datagram, in bytes."""
MOST_TIMES = 3
"""The greatest ratio of bytes sent to an address to bytes received from it before its validation
(RFC 9000 §8.1)."""


class Victim:
    """A socket that never sends."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self.socket.bind(("127.0.0.77", 0))
        self.socket.setblocking(False)
        self.received: list[int] = []
        """The sizes of the received datagrams."""

    def look(self) -> list[int]:
        while True:
            try:
                self.received.append(len(self.socket.recv(65_536)))
            except BlockingIOError:
                return self.received

    @property
    def address(self) -> tuple[str, int]:
        address: tuple[str, int] = self.socket.getsockname()
        return address


@contextmanager
def victim() -> Iterator[Victim]:
    victim = Victim()
    with closing(victim.socket):
        yield victim


def hand_back(attacker: Intruder, subtree: str, sessions: int, address: tuple[str, int]) -> None:
    """Joins for a subtree, and hands it back with `sessions` subscribers at an address."""

    def transfer(phase: pb.TransferPhase, **fields: object) -> pb.Packet:
        message = pb.Transfer(subtree=subtree, epoch=epoch, phase=phase, **fields)  # type: ignore[arg-type]
        return pb.Packet(transfer=message)

    def phases() -> set[int]:
        attacker.send_packets(pb.Packet(ping=pb.Ping()))
        return {packet.transfer.phase for packet in attacker.answers if packet.HasField("transfer")}

    join = pb.Join(request=11, node="evil", subtree=subtree, incarnation=1)
    join.address.CopyFrom(address_of(attacker.socket.getsockname()))
    attacker.send_deliveries(pb.Packet(join=join))
    until(lambda: bool(attacker.joinacks()), "it is granted", PATIENCE)
    epoch = attacker.joinacks()[-1].epoch
    attacker.send_deliveries(transfer(pb.TRANSFER_PHASE_READY))
    until(lambda: pb.TRANSFER_PHASE_COMMIT in phases(), "it has the subtree", PATIENCE)
    attacker.send_deliveries(transfer(pb.TRANSFER_PHASE_DONE))
    attacker.send_deliveries(pb.Packet(leave=pb.Leave(subtree=subtree, epoch=epoch)))
    for first in range(0, sessions, AT_ONCE):
        numbers = range(first + 1, min(first + AT_ONCE, sessions) + 1)
        subscribers = [
            pb.SubscriptionRecord(
                filter=f"{subtree}/#", qos=pb.QOS_AT_LEAST_ONCE, session=n, address=address_of(address)
            )
            for n in numbers
        ]
        known = [pb.SessionRecord(session=number) for number in numbers]
        is_last = numbers[-1] == sessions
        attacker.send_deliveries(
            transfer(pb.TRANSFER_PHASE_RECORDS, subscriptions=subscribers, sessions=known, last=is_last)
        )
    until(lambda: pb.TRANSFER_PHASE_READY in phases(), "the root has taken them in", PATIENCE)
    attacker.send_deliveries(transfer(pb.TRANSFER_PHASE_COMMIT))
    until(lambda: pb.TRANSFER_PHASE_DONE in phases(), "the root serves", PATIENCE)


@pytest.mark.parametrize("sessions", [1, 200])
def test_an_address_that_a_child_names_gets_one_small_datagram_for_each_session(sessions: int) -> None:
    with node_up() as node, victim() as target, closing(Intruder(node, "127.0.0.9")) as attacker:
        before = attacker.sent
        hand_back(attacker, SUBTREE, sessions, target.address)
        with sync.connect(node.root) as client:
            assert client.resolve(f"{SUBTREE}/x").subscriptions == sessions, "they are believed"
            for _ in range(MESSAGES):
                client.publish(f"{SUBTREE}/x", LARGE, qos=1, timeout=PATIENCE)
        received = target.look()
        assert len(received) <= sessions, received
        assert max(received, default=0) <= ONE_DATAGRAM
        assert sum(received) <= MOST_TIMES * (attacker.sent - before)
        assert received, "the attack reaches it"
