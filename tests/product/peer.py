"""A session that speaks the protocol with protobuf alone, and sends what no client of the project would
send."""

from __future__ import annotations

import secrets
from random import Random

from hbroker._proto import packet_pb2 as pb
from tests.product.node import Node, Stranger
from tests.waiting import until

ANSWERED_S = 30


class Peer(Stranger):
    """A session that a stranger opened, with the token that the node gave it."""

    def __init__(self, node: Node, random: Random, host: str = "127.0.0.1") -> None:
        super().__init__(node, host)
        self.random = random
        self._token = self.ask().challenge.token
        self._session = random.getrandbits(64) or 1
        self._incarnation = random.getrandbits(64)
        self._number = self._delivery = 0
        self._largest = 0
        self._answered: set[int] = set()
        self.send_packets(pb.Packet(ping=pb.Ping(sent_at_us=1)))

    def send_packets(self, *packets: pb.Packet, ack: pb.Ack | None = None, number: int | None = None) -> None:
        """Sends one datagram of the session."""
        self._number += 1
        datagram = pb.Datagram(packets=packets)
        datagram.header.session = self._session
        datagram.header.incarnation = self._incarnation
        datagram.header.token = self._token
        datagram.header.number = self._number if number is None else number
        if ack is None:
            ack = pb.Ack(largest=self._largest, ranges=[max(self._largest - 1, 0)])
        if ack.largest:
            datagram.header.ack.CopyFrom(ack)
        self.send(datagram.SerializeToString())
        for answer in self.receive():
            self._largest = max(self._largest, answer.header.number)
            self._answered.update(packet.suback.request for packet in answer.packets)

    def send_deliveries(self, *packets: pb.Packet) -> None:
        """Sends the packets as deliveries, each after the one before."""
        for packet in packets:
            packet.after = self._delivery
            self._delivery += 1
            packet.delivery = self._delivery
        self.send_packets(*packets)

    def await_answer(self) -> None:
        """Waits until the node has handled all requests of this session. The node handles them in order
        (§3.3)."""
        request = self.random.getrandbits(64) or 1
        self.send_deliveries(pb.Packet(unsubscribe=pb.Unsubscribe(request=request, filter="never/made")))

        def is_answered() -> bool:
            self.send_packets(pb.Packet(ping=pb.Ping()))
            return request in self._answered

        until(is_answered, "the answer to a session's last request", ANSWERED_S)

    def leave(self) -> None:
        """Ends the session in order."""
        self.send_deliveries(pb.Packet(leave=pb.Leave()))


class Listener(Stranger):
    """A stranger that stores what it receives, and has a token."""

    def __init__(self, node: Node, host: str = "127.0.0.1") -> None:
        self.answers: list[pb.Packet] = []
        super().__init__(node, host)
        self.token = self.ask().challenge.token

    def receive(self) -> list[pb.Datagram]:
        datagrams = super().receive()
        self.answers += (packet for datagram in datagrams for packet in datagram.packets)
        return datagrams

    def joinacks(self) -> list[pb.JoinAck]:
        """The answers to JOIN so far."""
        self.receive()
        return [packet.joinack for packet in self.answers if packet.HasField("joinack")]


class Intruder(Peer, Listener):
    """A session that stores what it receives."""

    def __init__(self, node: Node, host: str = "127.0.0.1") -> None:
        super().__init__(node, Random(secrets.randbits(64)), host)
