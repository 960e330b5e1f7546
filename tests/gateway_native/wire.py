"""An MQTT client that sends exactly what a test says, byte for byte, over a blocking socket."""

from __future__ import annotations

import socket
from types import TracebackType

PATIENCE_S = 30.0

CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 2, 3, 4, 5, 6, 7
SUBACK, UNSUBACK, PINGRESP, DISCONNECT, AUTH = 9, 11, 13, 14, 15


def varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, digit = value >> 7, value & 0x7F
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return len(data).to_bytes(2, "big") + data


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint(len(body)) + body


def connect(
    client_id: str,
    *,
    level: int = 5,
    clean: bool = True,
    keep_alive: int = 0,
    properties: bytes = b"",
) -> bytes:
    name = "MQIsdp" if level == 3 else "MQTT"
    body = text(name) + bytes([level, 2 if clean else 0]) + keep_alive.to_bytes(2, "big")
    if level == 5:
        body += varint(len(properties)) + properties
    return packet(0x10, body + text(client_id))


def subscribe(packet_id: int, *filters: tuple[str, int], level: int = 5, identifier: int = 0) -> bytes:
    properties = b"\x0b" + varint(identifier) if identifier else b""
    head = packet_id.to_bytes(2, "big") + (varint(len(properties)) + properties if level == 5 else b"")
    return packet(0x82, head + b"".join(text(filter) + bytes([options]) for filter, options in filters))


def publish(
    topic: str, payload: bytes, *, qos: int = 0, packet_id: int = 0, retain: bool = False, level: int = 5
) -> bytes:
    body = text(topic) + (packet_id.to_bytes(2, "big") if qos else b"") + (b"\0" if level == 5 else b"")
    return packet(0x30 | qos << 1 | retain, body + payload)


def ack(kind: int, packet_id: int) -> bytes:
    return packet(kind << 4 | (2 if kind == PUBREL else 0), packet_id.to_bytes(2, "big"))


class Raw:
    """`level`: the protocol level, which says how packets are read. `host`: the client's own address."""

    def __init__(self, port: int, *, level: int = 5, host: str = "127.0.0.1") -> None:
        self.level = level
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (host, 0))

    def __enter__(self) -> Raw:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, *packets: bytes) -> None:
        self.socket.sendall(b"".join(packets))

    def read(self) -> tuple[int, bytes]:
        """The next packet: its first byte (kind and flags), and its body."""
        first = self._exactly(1)[0]
        length = shift = 0
        while True:
            digit = self._exactly(1)[0]
            length |= (digit & 0x7F) << shift
            shift += 7
            if digit < 0x80:
                return first, self._exactly(length)

    def expect(self, kind: int) -> bytes:
        first, body = self.read()
        assert first >> 4 == kind, (first >> 4, body)
        return body

    def message(self) -> tuple[str, bytes, int, int, bytes]:
        """The next PUBLISH: topic, payload, QoS, packet id, properties."""
        first, body = self.read()
        assert first >> 4 == PUBLISH, (first >> 4, body)
        qos, cut = first >> 1 & 3, 2 + int.from_bytes(body[:2], "big")
        topic, body, packet_id, properties = body[2:cut].decode(), body[cut:], 0, b""
        if qos:
            packet_id, body = int.from_bytes(body[:2], "big"), body[2:]
        if self.level == 5:
            properties, body = body[1 : 1 + body[0]], body[1 + body[0] :]
        return topic, body, qos, packet_id, properties

    def at_end(self) -> bool:
        """Whether the server has closed the connection without sending more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def open(self, client_id: str, **options: object) -> Raw:
        """Sends CONNECT, and expects a CONNACK of success."""
        self.send(connect(client_id, level=self.level, **options))  # type: ignore[arg-type]
        assert self.expect(CONNACK)[1] == 0
        return self

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError(bytes(data))
            data += piece
        return bytes(data)
