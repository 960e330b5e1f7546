"""A datagram in words: the names of its packets, and the most important fields of each body.

The generated protobuf classes parse it, and so other code than the network's own codec.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from hbroker._proto import packet_pb2 as pb

__all__ = ["body_as_dict", "detail", "kind", "read"]

_TELLING: Final[dict[str, tuple[str, ...]]] = {
    "publish": ("topic", "qos", "retain"),
    "again": (),
    "puback": ("reason", "topic"),
    "pubconnect": ("topic", "mode"),
    "pubaccept": ("node", "reason", "subscriptions"),
    "subscribe": ("filter", "qos", "client"),
    "suback": ("filter", "node", "reason", "responsible", "active"),
    "unsubscribe": ("filter",),
    "ping": (),
    "pong": (),
    "join": ("node", "subtree", "epoch"),
    "joinack": ("node", "subtree", "reason", "epoch"),
    "leave": ("subtree", "reason"),
    "challenge": ("lifetime_s",),
    "referral": ("node",),
    "reset": ("session", "reason"),
    "transfer": ("subtree", "phase", "last"),
    "credit": ("messages", "bytes", "for_many"),
    "will": ("delay_s",),
    "willack": ("reason",),
    "order": ("kind", "node", "subtree"),
    "orderack": ("node", "reason", "done"),
    "authenticated": (),
    "revoked": ("first", "more"),
    "audit": ("event",),
}

_ALIKE: Final = ("topic", "payload", "publisher", "sequence", "published_at_us", "origin")
"""Fields of a PUBLISH that a delta (`again`) takes from the PUBLISH before it."""
_MOST_SAID: Final = 256
"""Most bytes that such a PUBLISH may have beside its payload."""


def read(data: bytes) -> pb.Datagram | None:
    """The datagram in these bytes; None: they are not one of the protocol.

    Each delta is expanded into its PUBLISH (docs/protocol.md §2.4). The packet inside AUTHENTICATED is added
    to it (docs/protocol.md §5.5). Every sender writes its incarnation (docs/protocol.md §2.2), and the
    protocol has no unknown fields. So hardly any foreign datagram passes, though protobuf accepts many.
    """
    datagram = pb.Datagram()
    try:
        datagram.ParseFromString(data)
    except DecodeError:
        return None
    ours = datagram.header.incarnation != 0 and not len(UnknownFieldSet(datagram))
    if not ours:
        return None
    _say_whole(datagram)
    _take_out(datagram)
    return datagram


def _take_out(datagram: pb.Datagram) -> None:
    for packet in datagram.packets:
        if packet.authenticated.packet:
            try:
                packet.MergeFrom(pb.Packet.FromString(packet.authenticated.packet))
            except DecodeError:
                continue


def _say_whole(datagram: pb.Datagram) -> None:
    """Expands each delta into its PUBLISH (docs/protocol.md §2.4). A delta without a model stays as it is."""
    model: pb.Packet | None = None
    for packet in datagram.packets:
        payload = packet.again
        if model is not None and packet == pb.Packet(again=payload):
            sequence = (model.publish.sequence + 1) % 2**64
            packet.CopyFrom(model)
            packet.publish.payload, packet.publish.sequence = payload, sequence
        elif not _is_model(packet):
            model = None
            continue
        model = packet


def _is_model(packet: pb.Packet) -> bool:
    """Whether the next message may be a delta of this one."""
    if not packet.HasField("publish") or packet.ByteSize() - len(packet.publish.payload) > _MOST_SAID:
        return False
    fields = {name: getattr(packet.publish, name) for name in _ALIKE}
    return packet == pb.Packet(publish=pb.Publish(**fields))


def kind(packet: pb.Packet) -> str:
    """The packet's name, as in docs/protocol.md; empty: it has no body."""
    return (packet.WhichOneof("body") or "").upper()


def detail(packet: pb.Packet) -> str:
    """The packet in a few words; empty: it has no body, or no field to show."""
    field = packet.WhichOneof("body")
    if field is None:
        return ""
    body = getattr(packet, field)
    if isinstance(body, bytes):
        return f"{len(body)} bytes, like no message"
    words = [_word(body, name) for name in _TELLING[field]]
    if isinstance(body, pb.Publish):
        words.append(f"{len(body.payload)} bytes")
        if body.HasField("fragment"):
            words.append(f"part {body.fragment.index + 1}/{body.fragment.count}")
    return " ".join(word for word in words if word)


def body_as_dict(packet: pb.Packet) -> dict[str, Any]:
    """The body, ready for JSON: bytes are base64, and 64-bit numbers are strings, as in protobuf's JSON."""
    field = packet.WhichOneof("body")
    if field == "again":
        return {"payload": b64encode(packet.again).decode()}
    return MessageToDict(getattr(packet, field), preserving_proto_field_name=True) if field else {}


def _word(body: Any, name: str) -> str:
    value = getattr(body, name)
    field = body.DESCRIPTOR.fields_by_name[name]
    if field.enum_type is not None:
        text: str = (
            field.enum_type.values_by_number[value].name
            if value in field.enum_type.values_by_number
            else str(value)
        )
        prefix = "".join(
            f"_{letter}" if letter.isupper() else letter for letter in field.enum_type.name
        ).upper()
        return text.removeprefix(prefix[1:] + "_") if value else ""
    if isinstance(value, bool):
        return name if value else ""
    if name in ("topic", "filter", "subtree"):
        return repr(value) if value or name == "subtree" else ""
    return f"{name}={value}" if value else ""
