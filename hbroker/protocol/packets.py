"""Control packets in Python: typed messages to serialised `Packet`s, and back (§2.3).

`pack` finds the field of the packet's `oneof` by the type of the body. Addresses go to the native core as
`(ip, port)` with the ip as text, and onto the wire as bytes in network order. Sections (§) are those of
docs/protocol.md.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import Final, TypeAlias, cast, get_args

from google.protobuf.message import DecodeError

from hbroker._proto import packet_pb2 as pb

__all__ = [
    "PACKET_ROOM",
    "REQUEST_PADDING",
    "RETRIED_REASONS",
    "TEMPORARY_REASONS",
    "Address",
    "Body",
    "Cut",
    "Reason",
    "address_from",
    "address_of",
    "body_of",
    "cut_from",
    "cut_of",
    "pack",
    "reason_name",
    "unpack",
]

Address: TypeAlias = tuple[str, int]
"""(ip as text, port)."""

Cut: TypeAlias = tuple[str, str, Address, int]
"""(subtree, node, address, epoch), as the native core takes it."""

Body: TypeAlias = (
    pb.PubConnect
    | pb.PubAccept
    | pb.Subscribe
    | pb.SubAck
    | pb.Unsubscribe
    | pb.Join
    | pb.JoinAck
    | pb.Leave
    | pb.Challenge
    | pb.Referral
    | pb.Transfer
    | pb.Order
    | pb.OrderAck
    | pb.Authenticated
    | pb.Revoked
    | pb.Audit
    | pb.Will
    | pb.WillAck
)
"""The packets that Python sends and reads. PUBLISH, PUBACK, CREDIT, PING, PONG and RESET stay in the native
core."""

Reason = pb.Reason

REQUEST_PADDING: Final = 512
"""A request outside of a session is padded to this many bytes (§4.1)."""

PACKET_ROOM: Final = 1_072
"""The largest packet, in bytes, that fits a datagram of 1,200 bytes with everything else of a link (§3.4)."""

_FIELDS: Final = frozenset(kind.__name__.lower() for kind in get_args(Body))
"""The fields of these packets in `Packet`: each has the name of its type in small letters."""

TEMPORARY_REASONS: Final = frozenset(
    {
        Reason.REASON_HANDOVER,
        Reason.REASON_QUOTA_EXCEEDED,
        Reason.REASON_OWNER_UNREACHABLE,
        Reason.REASON_NOT_SERVING,
    }
)
"""The client may ask the same node again later."""
RETRIED_REASONS: Final = TEMPORARY_REASONS | {Reason.REASON_NOT_RESPONSIBLE}
"""The client may ask again: the same node later, or another node at once."""


def pack(body: Body) -> bytes:
    """A serialised `Packet` with this body. The core adds the numbers of deliveries (§3.3)."""
    packet = pb.Packet()
    getattr(packet, type(body).__name__.lower()).CopyFrom(body)
    return packet.SerializeToString()


def packed(kind: str, body: bytes) -> bytes:
    """As `pack`, for a serialised body. `kind`: the field of the body in `Packet`."""
    tag = pb.Packet.DESCRIPTOR.fields_by_name[kind].number << 3 | 2
    return _varint(tag) + _varint(len(body)) + body


def unpack(packet: bytes) -> pb.Packet:
    """The inverse of `pack`. If the bytes do not parse, the result has no body, and readers skip it
    (§2.3)."""
    try:
        return pb.Packet.FromString(packet)
    except DecodeError:
        return pb.Packet()


def body_of(packet: bytes) -> Body | None:
    """The body of a serialised `Packet`; None: it has none that Python reads."""
    parsed = unpack(packet)
    kind = parsed.WhichOneof("body")
    return cast(Body, getattr(parsed, kind)) if kind in _FIELDS else None


def address_of(address: Address) -> pb.Address:
    """An address as the wire has it. Raises ValueError if the ip is not valid."""
    ip, port = address
    return pb.Address(ip=_packed(ip), port=port)


def address_from(address: pb.Address) -> Address | None:
    """The inverse of `address_of`; None: the ip has a wrong length, or the port is out of range."""
    if len(address.ip) not in (4, 16) or not 0 < address.port < 65_536:
        return None
    return str(ip_address(address.ip)), address.port


def cut_of(cut: Cut) -> pb.Cut:
    """A cut as the wire has it."""
    subtree, node, address, epoch = cut
    return pb.Cut(subtree=subtree, node=node, address=address_of(address), epoch=epoch)


def cut_from(cut: pb.Cut) -> Cut | None:
    """The inverse of `cut_of`; None: its address is not valid."""
    address = address_from(cut.address)
    return None if address is None else (cut.subtree, cut.node, address, cut.epoch)


def reason_name(reason: int) -> str:
    """`OVERLAP` for `REASON_OVERLAP`; the number as text if this version does not know it."""
    value = Reason.DESCRIPTOR.values_by_number.get(reason)
    return str(reason) if value is None else value.name.removeprefix("REASON_")


@lru_cache(maxsize=4_096)
def _packed(ip: str) -> bytes:
    """Cached, because a node sends its own address in every answer."""
    return ip_address(ip).packed


def _varint(number: int) -> bytes:
    """A number in protobuf's encoding: seven bits in each byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
