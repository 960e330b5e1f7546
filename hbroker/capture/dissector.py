"""A scapy layer for the protocol (docs/protocol.md §2): `HBroker`, with an `HBrokerPacket` for each packet.

    from hbroker.capture.dissector import bind
    bind()                                     # any UDP datagram of the protocol, whatever its ports
    bind(7700, 7701)                           # or: datagrams from or to these ports
    bind(key_log=KeyLog("keys.log"))           # opens what is sealed (docs/security.md)

The fields of both are read from a protobuf message when bytes are dissected, because protobuf has no fixed
offsets. Building gives the dissected bytes back. Each further datagram of a train (`trains`) is the payload
of the one before.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from scapy.config import conf
from scapy.fields import Field
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_layers

from hbroker._proto import packet_pb2 as pb
from hbroker.capture.associations import AssociationDatagram, Associations
from hbroker.capture.reading import body_as_dict, detail, kind, read
from hbroker.capture.trains import first_size
from hbroker.runtime.key_log import KeyLog

__all__ = ["HBroker", "HBrokerPacket", "bind"]

_MOST_NAMED: Final = 4


def bind(*ports: int, key_log: KeyLog | None = None) -> None:
    """Makes scapy dissect UDP from or to these ports as hbroker; without ports, all UDP of no other layer.

    `key_log`: opens what is sealed; None: nothing does. Datagrams that are not of the protocol stay raw.
    """
    _look.associations = Associations(key_log)
    if not ports:
        bind_layers(UDP, HBroker)
    for port in ports:
        bind_layers(UDP, HBroker, sport=port)
        bind_layers(UDP, HBroker, dport=port)


class _Seen(NamedTuple):
    """What is known of the first datagram of a train. `outer`: of its association; `inner`: its content."""

    size: int
    outer: AssociationDatagram | None
    inner: pb.Datagram | None


class _Look:
    """What is known of a datagram. scapy asks for the same datagram twice."""

    def __init__(self) -> None:
        self.associations = Associations()
        self._last: tuple[bytes, _Seen] | None = None

    def __call__(self, data: bytes) -> _Seen:
        if self._last is None or self._last[0] is not data:
            first = data[: first_size(data)]
            outer = self.associations.look(first)
            inner = first if outer is None else outer.data
            self._last = data, _Seen(len(first), outer, None if inner is None else read(inner))
        return self._last[1]


_look = _Look()


class _View(Field[Any, Any]):
    """A value that was read from the message."""

    __slots__ = ("_show",)

    def __init__(self, name: str, default: object, show: Any = str) -> None:
        super().__init__(name, default)
        self._show = show

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        """The value as `show()` prints it."""
        return str(self._show(x))


class _Packets(_View):
    """The packets of a datagram."""

    islist = 1
    holds_packets = 1


def _hexadecimal(number: int) -> str:
    return f"{number:#018x}" if number else "0"


class HBrokerPacket(Packet):
    """One packet of a bundle (docs/protocol.md §2.3).

    `topic`, `qos`, `publisher`, `sequence`, `size`: of a PUBLISH.
    """

    name = "packet"
    fields_desc = [  # noqa: RUF012  # scapy's own way to declare a layer
        _View("kind", ""),
        _View("delivery", 0),
        _View("after", 0),
        _View("retained", False),
        _View("topic", ""),
        _View("qos", 0),
        _View("publisher", 0, _hexadecimal),
        _View("sequence", 0),
        _View("size", 0),
        _View("detail", ""),
    ]

    def do_dissect(self, s: bytes) -> bytes:
        """Parses a serialised `Packet`."""
        packet = pb.Packet.FromString(s)
        publish = packet.publish
        self.fields.update(
            kind=kind(packet),
            delivery=packet.delivery,
            after=packet.after,
            retained=packet.HasField("retained_for"),
            topic=publish.topic,
            qos=publish.qos,
            publisher=publish.publisher,
            sequence=publish.sequence,
            size=len(publish.payload),
            detail=detail(packet),
        )
        self.raw_packet_cache = s
        self.explicit = 1
        return b""

    def self_build(self) -> bytes:
        """The bytes that were dissected."""
        return self.raw_packet_cache or b""

    def body_as_dict(self) -> dict[str, Any]:
        """The whole body, ready for JSON."""
        return body_as_dict(pb.Packet.FromString(self.self_build()))

    def mysummary(self) -> str:
        """`PUBLISH 'home/kitchen/lamp' AT_LEAST_ONCE 5 bytes (delivery 7)`"""
        words = [self.kind or "empty", self.detail]
        if self.delivery:
            words.append(f"(delivery {self.delivery})")
        return " ".join(word for word in words if word)


class HBroker(Packet):
    """One datagram: its header (docs/protocol.md §2.2) and its bundle.

    `association`: if it is one of an association, what it is ("sealed", "handshake", "retry", "reset") and
    its id; empty: it is not sealed. If it cannot be opened, nothing else is known. `ack`: the largest
    acknowledged number. `padding`: its length in bytes.
    """

    name = "HBroker"
    fields_desc = [  # noqa: RUF012  # scapy's own way to declare a layer
        _View("association", ""),
        _View("session", 0, _hexadecimal),
        _View("incarnation", 0, _hexadecimal),
        _View("number", 0),
        _View("ack", 0),
        _View("token", b"", bytes.hex),
        _View("ack_every", 0),
        _View("padding", 0),
        _Packets("packets", []),
    ]

    @classmethod
    def dispatch_hook(cls, _pkt: bytes | None = None, *args: object, **kwargs: object) -> type[Packet]:
        """Leaves a datagram of another protocol to scapy's raw layer."""
        return cls if _pkt is None or any(_look(_pkt)[1:]) else conf.raw_layer

    def do_dissect(self, s: bytes) -> bytes:
        """Parses a serialised `Datagram`, sealed or not, and returns what follows it. Raises ValueError for
        other bytes."""
        size, outer, datagram = _look(s)
        self.raw_packet_cache = s[:size]
        self.explicit = 1
        if outer is not None:
            self.fields["association"] = f"{outer.kind} {outer.to:016x}"
        if datagram is None:
            if outer is None:
                raise ValueError("not a datagram of hbroker")
            return s[size:]
        header = datagram.header
        self.fields.update(
            session=header.session,
            incarnation=header.incarnation,
            number=header.number,
            ack=header.ack.largest,
            token=header.token,
            ack_every=header.ack_every,
            padding=len(datagram.padding),
            packets=[HBrokerPacket(packet.SerializeToString()) for packet in datagram.packets],
        )
        return s[size:]

    def default_payload_class(self, payload: bytes) -> type[Packet]:
        """The next datagram of a train."""
        return HBroker

    def self_build(self) -> bytes:
        """The bytes that were dissected."""
        return self.raw_packet_cache or b""

    def mysummary(self) -> str:
        """`HBroker #12 PUBLISH 'home/kitchen/lamp' 5 bytes (delivery 7) | PUBACK`"""
        if self.association and not self.incarnation:
            return f"HBroker {self.association} {len(self.self_build())} bytes"
        words = [f"HBroker #{self.number}" if self.number else "HBroker"]
        named = [packet.mysummary() for packet in self.packets[:_MOST_NAMED]]
        if len(self.packets) > _MOST_NAMED:
            named.append(f"and {len(self.packets) - _MOST_NAMED} more")
        if not named:
            named.append(f"acknowledges #{self.ack}" if self.ack else "empty")
        return f"{words[0]} {' | '.join(named)}"
