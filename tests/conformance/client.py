"""An MQTT 5 client for these tests: `wire.Raw` with every field of CONNECT and PUBLISH, and with
properties."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias

from tests.gateway_native import wire
from tests.gateway_native.wire import (
    CONNACK,
    DISCONNECT,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    packet,
    text,
    varint,
)

PINGREQ: Final = b"\xc0\x00"
FOR_EVER_S: Final = 0xFFFF_FFFF


class P(IntEnum):
    """Properties (MQTT 5 §2.2.2.2)."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    IDENTIFIER = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    METHOD = 0x15
    DATA = 0x16
    WANTS_PROBLEMS = 0x17
    WILL_DELAY = 0x18
    WANTS_RESPONSE = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON = 0x1F
    RECEIVE_MAXIMUM = 0x21
    ALIAS_MAXIMUM = 0x22
    ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER = 0x26
    MAXIMUM_PACKET = 0x27
    WILDCARDS = 0x28
    IDENTIFIERS = 0x29
    SHARED = 0x2A


_FIXED: Final = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
_BINARY: Final = (P.CORRELATION_DATA, P.DATA)

Properties: TypeAlias = tuple[tuple[P, Any], ...]


def encode(properties: Iterable[tuple[P, Any]]) -> bytes:
    """Encodes properties, with their length in front."""
    out = b""
    for id, value in properties:
        out += bytes([id])
        if id in _FIXED:
            out += value.to_bytes(_FIXED[id], "big")
        elif id == P.IDENTIFIER:
            out += varint(value)
        elif id == P.USER:
            out += text(value[0]) + text(value[1])
        else:
            out += text(value)
    return varint(len(out)) + out


def decode(data: bytes) -> tuple[Properties, bytes]:
    """Decodes the properties at the beginning of `data`. Returns them and the remaining bytes."""
    length, data = _varint(data)
    data, rest = data[:length], data[length:]
    found: list[tuple[P, Any]] = []
    while data:
        id, data = P(data[0]), data[1:]
        value: Any
        if size := _FIXED.get(id):
            value, data = int.from_bytes(data[:size], "big"), data[size:]
        elif id == P.IDENTIFIER:
            value, data = _varint(data)
        elif id == P.USER:
            name, data = _text(data)
            value, data = _text(data)
            value = (name.decode(), value.decode())
        else:
            value, data = _text(data)
            value = value if id in _BINARY else value.decode()
        found.append((id, value))
    return tuple(found), rest


def _varint(data: bytes) -> tuple[int, bytes]:
    value = 0
    for at in range(4):
        value |= (data[at] & 0x7F) << 7 * at
        if data[at] < 0x80:
            return value, data[at + 1 :]
    raise ValueError(data)


def _text(data: bytes) -> tuple[bytes, bytes]:
    cut = 2 + int.from_bytes(data[:2], "big")
    return data[2:cut], data[cut:]


@dataclass(frozen=True)
class Will:
    topic: str
    payload: bytes = b"gone"
    qos: int = 1
    retain: bool = False
    properties: Properties = ()


@dataclass(frozen=True)
class Message:
    """A received PUBLISH."""

    topic: str
    payload: bytes
    qos: int
    packet_id: int
    retain: bool
    dup: bool
    properties: Properties

    def all(self, id: P) -> list[Any]:
        return [value for other, value in self.properties if other == id]

    def get(self, id: P) -> Any:
        return next(iter(self.all(id)), None)


@dataclass(frozen=True)
class Answer:
    """A received CONNACK, acknowledgement or DISCONNECT."""

    code: int
    properties: Properties = ()
    flags: int = 0

    def get(self, id: P) -> Any:
        return next((value for other, value in self.properties if other == id), None)


def connect(
    client_id: str,
    *,
    clean: bool = True,
    keep_alive: int = 0,
    properties: Properties = (),
    will: Will | None = None,
    user: str | None = None,
    password: bytes | None = None,
) -> bytes:
    """Encodes CONNECT."""
    flags = (2 if clean else 0) | (0x80 if user is not None else 0) | (0x40 if password is not None else 0)
    payload = text(client_id)
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
        payload += encode(will.properties) + text(will.topic) + text(will.payload)
    payload += b"".join(text(field) for field in (user, password) if field is not None)
    head = text("MQTT") + bytes([5, flags]) + keep_alive.to_bytes(2, "big")
    return packet(0x10, head + encode(properties) + payload)


def publish(
    topic: str | bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    packet_id: int = 1,
    retain: bool = False,
    dup: bool = False,
    properties: Properties = (),
) -> bytes:
    """Encodes PUBLISH."""
    body = text(topic) + (packet_id.to_bytes(2, "big") if qos else b"") + encode(properties)
    return packet(0x30 | dup << 3 | qos << 1 | retain, body + payload)


def subscribe(packet_id: int, *filters: str, options: int = 1, properties: Properties = ()) -> bytes:
    """Encodes SUBSCRIBE. All filters have the same options."""
    pairs = b"".join(text(filter) + bytes([options]) for filter in filters)
    return packet(0x82, packet_id.to_bytes(2, "big") + encode(properties) + pairs)


def unsubscribe(packet_id: int, *filters: str | bytes) -> bytes:
    """Encodes UNSUBSCRIBE."""
    return packet(0xA2, packet_id.to_bytes(2, "big") + b"\0" + b"".join(map(text, filters)))


def ack(kind: int, packet_id: int, code: int = 0) -> bytes:
    """Encodes PUBACK, PUBREC, PUBREL or PUBCOMP. Success has the short form."""
    return packet(
        kind << 4 | (kind == PUBREL) << 1, packet_id.to_bytes(2, "big") + bytes([code] if code else [])
    )


def disconnect(code: int = 0, properties: Properties = ()) -> bytes:
    """Encodes DISCONNECT."""
    return packet(0xE0, bytes([code]) + encode(properties)) if code or properties else b"\xe0\x00"


def auth(code: int, properties: Properties) -> bytes:
    """Encodes AUTH."""
    return packet(0xF0, bytes([code]) + encode(properties))


class Client(wire.Raw):
    """A connection to the gateway. It decodes every field of the received packets."""

    connack: Answer

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._messages: deque[tuple[int, bytes]] = deque()

    def __enter__(self) -> Client:
        return self

    def opened(self, client_id: str, **options: Any) -> Client:
        """Sends CONNECT. The CONNACK must report success, and is kept."""
        self.send(connect(client_id, **options))
        self.connack = self.answer(CONNACK)
        assert self.connack.code == 0, self.connack
        return self

    def answer(self, kind: int, packet_id: int | None = None) -> Answer:
        """Reads the next packet: CONNACK, DISCONNECT, or the acknowledgement of this packet id."""
        first, body = self.read()
        assert first >> 4 == kind, (first >> 4, body)
        assert first & 0xF == (2 if kind == PUBREL else 0)
        flags = 0
        if kind == CONNACK:
            flags, body = body[0], body[1:]
        elif kind != DISCONNECT:
            assert packet_id == int.from_bytes(body[:2], "big")
            body = body[2:]
        if len(body) < 2:
            return Answer(body[0] if body else 0, (), flags)
        properties, rest = decode(body[1:])
        assert rest == b""
        return Answer(body[0], properties, flags)

    def codes(self, kind: int, packet_id: int) -> list[int]:
        """Reads the next packet, which is SUBACK or UNSUBACK with this packet id. Returns its reason
        codes."""
        first, body = self.read()
        assert (first, int.from_bytes(body[:2], "big")) == (kind << 4, packet_id), (first, body)
        return list(decode(body[2:])[1])

    def subscribe(
        self, *filters: str, options: int = 1, packet_id: int = 1, properties: Properties = ()
    ) -> list[int]:
        """Sends SUBSCRIBE. Returns the reason codes of SUBACK."""
        self.send(subscribe(packet_id, *filters, options=options, properties=properties))
        return self.codes(SUBACK, packet_id)

    def unsubscribe(self, *filters: str, packet_id: int = 2) -> list[int]:
        """Sends UNSUBSCRIBE. Returns the reason codes of UNSUBACK."""
        self.send(unsubscribe(packet_id, *filters))
        return self.codes(UNSUBACK, packet_id)

    def publish(self, topic: str, payload: bytes = b"", *, qos: int = 1, **options: Any) -> int:
        """Sends PUBLISH and completes its acknowledgement. Returns the reason code."""
        packet_id = options.setdefault("packet_id", 1)
        self.send(publish(topic, payload, qos=qos, **options))
        if qos == 0:
            return 0
        code = self._answer_past_messages(PUBACK if qos == 1 else PUBREC, packet_id)
        if qos == 2 and code < 0x80:
            self.send(ack(PUBREL, packet_id))
            assert self._answer_past_messages(PUBCOMP, packet_id) == 0
        return code

    def next(self) -> Message:
        """Reads the next packet, which is PUBLISH, and does not acknowledge it."""
        first, body = self._messages.popleft() if self._messages else self.read()
        assert first >> 4 == PUBLISH, (first >> 4, body)
        topic, body = _text(body)
        packet_id, qos = 0, first >> 1 & 3
        if qos:
            packet_id, body = int.from_bytes(body[:2], "big"), body[2:]
        properties, payload = decode(body)
        return Message(topic.decode(), payload, qos, packet_id, bool(first & 1), bool(first & 8), properties)

    def take(self) -> Message:
        """Reads the next packet, which is PUBLISH, and completes its acknowledgement."""
        message = self.next()
        if message.qos == 1:
            self.send(ack(PUBACK, message.packet_id))
        elif message.qos == 2:
            self.send(ack(PUBREC, message.packet_id))
            assert self._answer_past_messages(PUBREL, message.packet_id) == 0
            self.send(ack(PUBCOMP, message.packet_id))
        return message

    def ping(self) -> None:
        """Sends PINGREQ. PINGRESP is the next packet, so everything sent before has been read."""
        assert not self._messages
        self.send(PINGREQ)
        assert self.expect(PINGRESP) == b""

    def leave(self, code: int = 0, properties: Properties = ()) -> None:
        """Sends DISCONNECT and waits for the end of the connection."""
        self.send(disconnect(code, properties))
        assert self.at_end()

    def is_disconnected(self, code: int) -> bool:
        """Whether the server sends DISCONNECT with this code next, and then closes the connection."""
        told = self.answer(DISCONNECT)
        assert told.code == code, told
        return self.at_end()

    def _answer_past_messages(self, kind: int, packet_id: int) -> int:
        """The reason code of this acknowledgement. Messages received before it wait for `next`."""
        while True:
            first, body = self.read()
            if first >> 4 == PUBLISH:
                self._messages.append((first, body))
                continue
            assert (first >> 4, int.from_bytes(body[:2], "big")) == (kind, packet_id), (first >> 4, body)
            return body[2] if len(body) > 2 else 0
