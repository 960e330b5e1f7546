"""Load for any MQTT 3.1.1 broker, over TCP or TLS, as cheap as it can be in Python: nothing is done for each
message.

The publisher sends slices of one stream of PUBLISH packets that was encoded beforehand, a cycle of numbered
messages. At QoS 0 a broker passes the packets on byte for byte, so the subscriber's stream has to *be* that
cycle: one comparison checks a whole batch for loss, doubles, disorder and damage. At QoS 1 only the packet
ids differ; they are read, blanked and acknowledged by strided slices, for all packets have one length. Only
where a comparison fails are messages looked at one by one.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Final

from bench.secure import SecureSocket
from bench.sequences import Stream
from bench.transport import FILLER, PAYLOAD_BYTES, Address, NoAnswer, topic_of

__all__ = ["MqttPublisher", "MqttSubscriber"]

_CYCLE: Final = 16_384
"""Messages of the cycle: more than may be under way, and packet ids of 16 bits suffice."""
_NUMBER: Final = struct.Struct(">Q")
_RECEIVE_BYTES: Final = 1 << 18
_TIMEOUT_S: Final = 10.0
_AT_ONCE: Final = 64
"""Connections that are opened before the first is answered: what any broker's listening socket holds."""

_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _SUBSCRIBE, _SUBACK = 0x10, 0x20, 0x30, 0x40, 0x82, 0x90
_CLEAN_SESSION: Final = 0x02


class MqttPublisher:
    """Publishes on the topics of all pairs, in turn, each over a connection of its own."""

    def __init__(self, broker: Address, pairs: int, qos: int, *, tls: bool = False) -> None:
        self._qos = qos
        self._forms = [_Form(topic_of(pair), qos) for pair in range(pairs)]
        self._cycles = [memoryview(form.cycle(with_ids=True)) for form in self._forms]
        self._sockets = _connect_all(broker, [f"publisher-{pair}" for pair in range(pairs)], tls)
        for connection in self._sockets:
            connection.settimeout(None)
        self._positions = [0] * pairs
        self._turn = 0
        self._published = 0
        self._acknowledgement_bytes = 0

    def publish(self, count: int) -> int:
        """The next `count` messages of the next pair."""
        pair = self._turn = (self._turn + 1) % len(self._sockets)
        size, start = self._forms[pair].size, self._positions[pair]
        end = min(start + count, _CYCLE)
        self._sockets[pair].sendall(self._cycles[pair][start * size : end * size])
        self._positions[pair] = end % _CYCLE
        self._published += end - start
        return end - start

    def publish_one(self, payload: bytes) -> None:
        """One message on the next topic, over its connection."""
        pair = self._turn = (self._turn + 1) % len(self._sockets)
        number = self._positions[pair]
        self._positions[pair] = (number + 1) % _CYCLE
        self._published += 1
        self._sockets[pair].sendall(self._forms[pair].packet(payload, number + 1))

    def turn(self) -> None:
        """Takes in the PUBACKs of the last pair."""
        self._take_acknowledgements(self._sockets[self._turn])

    @property
    def acknowledged(self) -> int:
        return self._acknowledgement_bytes // 4

    def datagrams(self) -> int:
        """None: it is a stream."""
        return 0

    def drain(self, timeout_s: float) -> None:
        """Waits for the PUBACKs: a connection that is closed with some unread is reset, and its last messages
        lost."""
        deadline = time.monotonic() + timeout_s
        while self._qos and self.acknowledged < self._published and time.monotonic() < deadline:
            for connection in select.select(self._sockets, [], [], 0.1)[0]:
                self._take_acknowledgements(connection)

    def close(self) -> None:
        """Ends the connections."""
        for connection in self._sockets:
            connection.close()

    def _take_acknowledgements(self, connection: socket.socket) -> None:
        try:
            self._acknowledgement_bytes += len(connection.recv(_RECEIVE_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return


class MqttSubscriber:
    """Receives the topics of all pairs, each over connections of their own."""

    def __init__(
        self, broker: Address, pairs: int, qos: int, subscribers: int = 1, *, tls: bool = False
    ) -> None:
        count = pairs * subscribers
        topics = [topic_of(index // subscribers) for index in range(count)]
        self.streams = [Stream(first=0) for _ in range(count)]
        self.corrupted = 0
        self._each = subscribers
        self._forms = [_Form(topic_of(pair), qos) for pair in range(pairs)]
        self._cycles = [memoryview(form.cycle(with_ids=False) * 2) for form in self._forms]
        self._sockets = _connect_all(broker, [f"subscriber-{index}" for index in range(count)], tls)
        self._rests = [b""] * count
        _subscribe_all(self._sockets, topics, qos)

    def filenos(self) -> list[int]:
        """The sockets'."""
        return [connection.fileno() for connection in self._sockets]

    def take(self, index: int) -> int:
        """Takes what one connection has, and compares it with the cycle; how many messages are new."""
        packets = self._receive(index)
        form, stream = self._forms[index // self._each], self.streams[index]
        cycle, before = self._cycles[index // self._each], stream.received
        size, count = form.size, len(packets) // form.size
        start = stream.expected % _CYCLE
        if count <= _CYCLE and packets == cycle[start * size : (start + count) * size]:
            stream.take_run(count)
        else:
            self._inspect(form, stream, packets)
        return stream.received - before

    def take_payloads(self, index: int) -> list[bytes]:
        """As `take`, for payloads that are not the cycle's."""
        packets = self._receive(index)
        size = self._forms[index // self._each].size
        payloads = [bytes(packets[end - PAYLOAD_BYTES : end]) for end in range(size, len(packets) + 1, size)]
        self.streams[index].take_run(len(payloads))
        return payloads

    def datagrams(self) -> int:
        """None: it is a stream."""
        return 0

    def close(self) -> None:
        """Ends the connections."""
        for connection in self._sockets:
            connection.close()

    def _receive(self, index: int) -> bytearray:
        """Whole packets, acknowledged where they are to be, their packet ids blanked."""
        connection, form = self._sockets[index], self._forms[index // self._each]
        received = connection.recv(_RECEIVE_BYTES)
        if not received:
            raise NoAnswer("the broker closed a connection")
        packets = bytearray(self._rests[index] + received)
        whole = len(packets) - len(packets) % form.size
        self._rests[index] = bytes(packets[whole:])
        del packets[whole:]
        if form.qos and packets:
            connection.sendall(form.take_ids(packets))
        return packets

    def _inspect(self, form: _Form, stream: Stream, packets: bytearray) -> None:
        for start in range(0, len(packets), form.size):
            packet = bytes(packets[start : start + form.size])
            (number,) = _NUMBER.unpack_from(packet, form.size - PAYLOAD_BYTES)
            if number >= _CYCLE or packet != form.numbered(number, 0):
                self.corrupted += 1
                continue
            ahead = (number - stream.expected + _CYCLE // 2) % _CYCLE - _CYCLE // 2
            stream.take([stream.expected + ahead])


class _Form:
    """The PUBLISH packets of one topic, all of one length (MQTT 3.1.1 §3.3)."""

    def __init__(self, topic: str, qos: int) -> None:
        self.qos = qos
        name = topic.encode()
        self._head = struct.pack(">H", len(name)) + name
        self.size = len(self.packet(FILLER, 1))
        self._id_at = self.size - PAYLOAD_BYTES - 2

    def packet(self, payload: bytes, packet_id: int) -> bytes:
        """One packet."""
        id_field = struct.pack(">H", packet_id) if self.qos else b""
        return _packet(_PUBLISH | self.qos << 1, self._head + id_field + payload)

    def numbered(self, number: int, packet_id: int) -> bytes:
        """The packet of one number of the cycle."""
        return self.packet(_NUMBER.pack(number) + FILLER[_NUMBER.size :], packet_id)

    def cycle(self, *, with_ids: bool) -> bytes:
        """All packets of the cycle; their ids are 0 where they are to be compared."""
        return b"".join(self.numbered(number, with_ids * (number + 1)) for number in range(_CYCLE))

    def take_ids(self, packets: bytearray) -> bytearray:
        """Blanks the packet ids; returns a PUBACK for each (MQTT 3.1.1 §3.4)."""
        count = len(packets) // self.size
        answers = bytearray(_packet(_PUBACK, b"\0\0") * count)
        for byte in range(2):
            place = slice(self._id_at + byte, None, self.size)
            answers[2 + byte :: 4] = packets[place]
            packets[place] = bytes(count)
        return answers


def _connect_all(broker: Address, client_ids: Sequence[str], tls: bool) -> list[socket.socket]:
    connections: list[socket.socket] = []
    for start in range(0, len(client_ids), _AT_ONCE):
        fresh = [_connect(broker, client_id, tls) for client_id in client_ids[start : start + _AT_ONCE]]
        for connection in fresh:
            _expect(connection, bytes([_CONNACK, 2, 0, 0]))
        connections += fresh
    return connections


def _connect(broker: Address, client_id: str, tls: bool) -> socket.socket:
    connection = socket.create_connection(broker, _TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if tls:
        connection = SecureSocket.over(connection)
    head = struct.pack(">H4sBBH", 4, b"MQTT", 4, _CLEAN_SESSION, 0)
    connection.sendall(_packet(_CONNECT, head + _text(client_id)))
    return connection


def _subscribe_all(connections: Sequence[socket.socket], topics: Sequence[str], qos: int) -> None:
    for connection, topic in zip(connections, topics, strict=True):
        connection.sendall(_packet(_SUBSCRIBE, b"\0\1" + _text(topic) + bytes([qos])))
    for connection in connections:
        _expect(connection, bytes([_SUBACK, 3, 0, 1, qos]))
        connection.settimeout(None)


def _expect(connection: socket.socket, answer: bytes) -> None:
    received = connection.recv(len(answer), socket.MSG_WAITALL)
    if received != answer:
        raise NoAnswer(f"the broker answered {received.hex()}, not {answer.hex()}")


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _packet(kind: int, body: bytes) -> bytes:
    length, digits = len(body), bytearray()
    while length > 127:
        digits.append(length & 127 | 128)
        length >>= 7
    digits.append(length)
    return bytes([kind]) + bytes(digits) + body
