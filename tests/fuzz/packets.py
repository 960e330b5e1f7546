"""Control packets as bytes: splitting a stream (MQTT 5 §2.1), and mutating valid packets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

_LENGTH_BYTES: Final = 4
_EDGES: Final = (0x00, 0x01, 0x02, 0x04, 0x0F, 0x10, 0x7F, 0x80, 0xC0, 0xED, 0xF4, 0xFE, 0xFF)
_LENGTHS: Final = (0, 1, 2, 5, 127, 128, 16_383, 16_384, 0x7FFF, 0xFFFF)
_TYPES: Final = range(16)
_DISCONNECT: Final = 14


def split(stream: bytes) -> list[bytes]:
    """The packets of a stream. An incomplete packet at its end is left out."""
    packets = []
    at = 0
    while at < len(stream):
        length, size = 0, 0
        for size, byte in enumerate(stream[at + 1 : at + 1 + _LENGTH_BYTES], 1):
            length |= (byte & 0x7F) << 7 * (size - 1)
            if byte < 0x80:
                break
        end = at + 1 + size + length
        if not size or end > len(stream):
            break
        packets.append(stream[at:end])
        at = end
    return packets


def framed(first: int, body: bytes) -> bytes:
    """A packet with its fixed header."""
    length, head = len(body), bytearray([first])
    while True:
        length, low = divmod(length, 0x80)
        head.append(low | (0x80 if length else 0))
        if not length:
            return bytes(head) + body


def renamed(connect: bytes, client_id: bytes) -> bytes:
    """A CONNECT with another client id (MQTT 5 §3.1)."""
    body = connect[1 + _length_size(connect) :]
    at = 2 + int.from_bytes(body[:2], "big")
    is_5 = body[at] == 5
    at += 4  # Version, flags and keep-alive.
    if is_5:  # Properties of fewer than 128 bytes.
        at += 1 + body[at]
    rest = body[at + 2 + int.from_bytes(body[at : at + 2], "big") :]
    return framed(connect[0], body[:at] + len(client_id).to_bytes(2, "big") + client_id + rest)


def script(random: Random, captures: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The packets that one connection sends: those of a recorded client, some of them mutated.

    Most scripts have their own client id; otherwise each would take over the session of the one before. Some
    continue after their DISCONNECT.
    """
    packets = list(random.choice(captures))
    if random.random() < 0.9:
        packets[0] = renamed(packets[0], b"fuzz-%d" % random.getrandbits(32))
    if random.random() < 0.9:
        packets = [packet for packet in packets if packet[0] >> 4 != _DISCONNECT]
    if random.random() < 0.3:  # Mixed with the packets of another client, in another order.
        mixed = [*packets[1:], *random.choice(captures)[1:]]
        packets[1:] = random.sample(mixed, len(mixed))
    broken = random.choice((0.02, 0.1, 0.3))
    connect, *others = packets  # A broken CONNECT ends the connection at once.
    return [_perhaps(random, connect, broken / 4), *(_perhaps(random, packet, broken) for packet in others)]


def mutated(random: Random, packet: bytes) -> bytes:
    """A valid packet with one to three mutations."""
    broken = bytearray(packet)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if broken:
            random.choice(_FAULTS)(random, broken)
    if random.random() < 0.7 and broken:  # Otherwise the length is wrong, and all that follows is shifted.
        (body,) = (bytes(broken[1 + _length_size(broken) :]),)
        return framed(broken[0], body)
    return bytes(broken)


def _perhaps(random: Random, packet: bytes, odds: float) -> bytes:
    return mutated(random, packet) if random.random() < odds else packet


def _length_size(packet: bytes | bytearray) -> int:
    head = packet[1 : 1 + _LENGTH_BYTES]
    return next((size for size, byte in enumerate(head, 1) if byte < 0x80), len(head))


def _flip(random: Random, packet: bytearray) -> None:
    packet[random.randrange(len(packet))] ^= 1 << random.randrange(8)


def _set(random: Random, packet: bytearray) -> None:
    packet[random.randrange(len(packet))] = random.choice(_EDGES)


def _set_length(random: Random, packet: bytearray) -> None:
    """Sets a length somewhere: usually at a random position, sometimes at a real length field."""
    at = random.randrange(len(packet))
    packet[at : at + 2] = random.choice(_LENGTHS).to_bytes(2, "big")


def _set_type(random: Random, packet: bytearray) -> None:
    packet[0] = random.choice(_TYPES) << 4 | random.randrange(16)


def _cut(random: Random, packet: bytearray) -> None:
    del packet[random.randrange(len(packet)) :]


def _remove(random: Random, packet: bytearray) -> None:
    at = random.randrange(len(packet))
    del packet[at : at + random.randint(1, 4)]


def _insert(random: Random, packet: bytearray) -> None:
    at = random.randrange(len(packet) + 1)
    packet[at:at] = random.randbytes(random.randint(1, 8))


def _repeat(random: Random, packet: bytearray) -> None:
    """Repeats a part of the packet, for example a property or a filter."""
    at = random.randrange(len(packet))
    packet[at:at] = packet[at : at + random.randint(1, 16)]


_FAULTS: Final[tuple[Callable[[Random, bytearray], None], ...]] = (
    _flip,
    _flip,
    _set,
    _set_length,
    _set_type,
    _cut,
    _remove,
    _insert,
    _repeat,
)
