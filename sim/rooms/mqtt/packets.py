"""The packets of an MQTT 5 client (MQTT 5 §2, §3), sans-IO.

Writers return whole packets. `Splitter` divides received bytes into packets; readers parse the body of one.
The writers write only the properties that this client needs. The readers skip all properties except the
server's Receive Maximum. Bytes that break the format raise `MalformedPacket`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

__all__ = [
    "Connack",
    "Kind",
    "MalformedPacket",
    "ReceivedPublish",
    "Splitter",
    "Will",
    "acknowledgement",
    "connect",
    "disconnect",
    "ping",
    "publish",
    "read_acknowledgement",
    "read_connack",
    "read_publish",
    "read_suback",
    "subscribe",
]


class Kind(IntEnum):
    """Packet types (MQTT 5 §2.1.2)."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14


class MalformedPacket(Exception):
    """The server sent bytes that are not MQTT 5."""


@dataclass(frozen=True, slots=True)
class Will:
    """A will (MQTT 5 §3.1.2.5)."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


@dataclass(frozen=True, slots=True)
class Connack:
    """CONNACK (MQTT 5 §3.2). `receive_maximum`: messages of QoS 1 and 2 that may be in flight."""

    reason: int
    receive_maximum: int


@dataclass(frozen=True, slots=True)
class ReceivedPublish:
    """PUBLISH (MQTT 5 §3.3). `packet_id`: 0 at QoS 0."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    packet_id: int


_VERSION: Final = 5
_MORE: Final = 0x80
_LONGEST: Final = 268_435_455
_SESSION_EXPIRY, _RECEIVE_MAXIMUM = 0x11, 0x21
_CLEAN_START, _WILL, _WILL_RETAIN = 0x02, 0x04, 0x20
_FIXED: Final = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
"""The lengths of properties with a fixed length (MQTT 5 §2.2.2.2)."""
_TEXTS: Final = (0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F)
_PAIR, _IDENTIFIER = 0x26, 0x0B


# Writers


def connect(
    client_id: str,
    *,
    keep_alive_s: int,
    clean_start: bool = True,
    session_expiry_s: int = 0,
    will: Will | None = None,
) -> bytes:
    """CONNECT (MQTT 5 §3.1)."""
    flags = _CLEAN_START if clean_start else 0
    payload = _text(client_id)
    if will is not None:
        flags |= _WILL | will.qos << 3 | (_WILL_RETAIN if will.retain else 0)
        payload += b"\x00" + _text(will.topic) + struct.pack(">H", len(will.payload)) + will.payload
    properties = struct.pack(">BI", _SESSION_EXPIRY, session_expiry_s) if session_expiry_s else b""
    head = _text("MQTT") + struct.pack(">BBHB", _VERSION, flags, keep_alive_s, len(properties))
    return _packet(Kind.CONNECT << 4, head + properties + payload)


def publish(topic: str, payload: bytes, qos: int, *, retain: bool = False, packet_id: int = 0) -> bytes:
    """PUBLISH (MQTT 5 §3.3)."""
    name = topic.encode()
    numbered = struct.pack(">H", packet_id) if qos else b""
    first = Kind.PUBLISH << 4 | qos << 1 | retain
    return _packet(first, b"%b%b%b\x00%b" % (len(name).to_bytes(2, "big"), name, numbered, payload))


def acknowledgement(kind: Kind, packet_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, with success (MQTT 5 §3.4 to §3.7)."""
    return struct.pack(">BBH", kind << 4 | (2 if kind is Kind.PUBREL else 0), 2, packet_id)


def subscribe(packet_id: int, filter: str, qos: int, *, no_local: bool = False) -> bytes:
    """SUBSCRIBE to one filter, without its retained messages (MQTT 5 §3.8)."""
    options = qos | no_local << 2 | 2 << 4
    body = struct.pack(">HB", packet_id, 0) + _text(filter) + bytes([options])
    return _packet(Kind.SUBSCRIBE << 4 | 2, body)


def ping() -> bytes:
    """PINGREQ (MQTT 5 §3.12)."""
    return bytes([Kind.PINGREQ << 4, 0])


def disconnect() -> bytes:
    """DISCONNECT with reason code 0x00, so that no will is published (MQTT 5 §3.14)."""
    return bytes([Kind.DISCONNECT << 4, 0])


# Readers


class Splitter:
    """Divides a stream of bytes into packets."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The first byte and the body of each packet that is complete now. Raises Malformed."""
        if self._rest:
            self._rest += data
            data = bytes(self._rest) if self._is_whole(self._rest) else b""
            if not data:
                return
            self._rest.clear()
        at = 0
        while (found := _body_of(data, at)) is not None and found[1] <= len(data):
            start, end = found
            yield data[at], data[start:end]
            at = end
        self._rest += data[at:]

    @staticmethod
    def _is_whole(data: bytearray) -> bool:
        found = _body_of(data, 0)
        return found is not None and found[1] <= len(data)


def read_connack(body: bytes) -> Connack:
    """Parses the body of a CONNACK. Raises Malformed."""
    try:
        receive_maximum = 65_535
        for name, value in _properties(body, 2):
            if name == _RECEIVE_MAXIMUM:
                receive_maximum = int.from_bytes(value, "big")
        return Connack(body[1], receive_maximum)
    except (IndexError, struct.error):
        raise MalformedPacket("CONNACK") from None


def read_publish(first: int, body: bytes) -> ReceivedPublish:
    """Parses a PUBLISH. Raises Malformed."""
    try:
        qos = first >> 1 & 3
        at = 2 + int.from_bytes(body[:2], "big")
        topic = body[2:at].decode()
        packet_id = 0
        if qos:
            packet_id = int.from_bytes(body[at : at + 2], "big")
            at += 2
        length, start = _variable(body, at)
        if start + length > len(body) or qos == 3 or (qos and not packet_id):
            raise MalformedPacket("PUBLISH")
        return ReceivedPublish(topic, body[start + length :], qos, bool(first & 1), packet_id)
    except (IndexError, UnicodeDecodeError):
        raise MalformedPacket("PUBLISH") from None


def read_acknowledgement(body: bytes) -> tuple[int, int]:
    """Packet id and reason code of PUBACK, PUBREC, PUBREL or PUBCOMP. Raises Malformed."""
    if len(body) < 2:
        raise MalformedPacket("an acknowledgement")
    return int.from_bytes(body[:2], "big"), body[2] if len(body) > 2 else 0


def read_suback(body: bytes) -> tuple[int, int]:
    """Packet id and reason code of a SUBACK for one filter. Raises Malformed."""
    if len(body) < 4:
        raise MalformedPacket("SUBACK")
    return int.from_bytes(body[:2], "big"), body[-1]


def _body_of(data: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """The begin and the end of the body of the packet at `at`; None: its length is not complete."""
    try:
        length, start = _variable(data, at + 1)
    except IndexError:
        return None
    return start, start + length


def _variable(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """A variable byte integer and its end (MQTT 5 §1.5.5). Raises IndexError, Malformed."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _MORE:
            return value, at
        shift += 7
        if shift > 21:
            raise MalformedPacket("a length of more than four bytes")


def _properties(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    length, at = _variable(body, at)
    end = at + length
    while at < end:
        name = body[at]
        start = at + 1
        if name in _FIXED:
            at = start + _FIXED[name]
        elif name in _TEXTS:
            at = start + 2 + int.from_bytes(body[start : start + 2], "big")
        elif name == _PAIR:
            at = start + 2 + int.from_bytes(body[start : start + 2], "big")
            at += 2 + int.from_bytes(body[at : at + 2], "big")
        elif name == _IDENTIFIER:
            at = _variable(body, start)[1]
        else:
            raise MalformedPacket(f"property {name:#x}")
        if at > end or end > len(body):
            raise MalformedPacket("properties")
        yield name, body[start:at]


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _packet(first: int, body: bytes) -> bytes:
    length = len(body)
    if length < _MORE:
        return bytes((first, length)) + body
    if length > _LONGEST:
        raise ValueError(f"a packet of {length} bytes: {_LONGEST} are the most")
    digits = bytearray((first,))
    while length >= _MORE:
        digits.append(length & 0x7F | _MORE)
        length >>= 7
    digits.append(length)
    return bytes(digits) + body
