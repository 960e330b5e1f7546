"""Datagrams for the tests of the capture, built with protobuf alone, in IP packets."""

from __future__ import annotations

from typing import TypeAlias

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet

from hbroker._proto import packet_pb2 as pb

Address: TypeAlias = tuple[str, int]

TOPIC = "home/kitchen/lamp"
INCARNATION = 0x1122334455667788


def datagram(*packets: pb.Packet, number: int = 7, ack: int = 0, padding: int = 0) -> bytes:
    """A serialised datagram."""
    header = pb.Header(session=0xABC, incarnation=INCARNATION, number=number)
    if ack:
        header.ack.largest = ack
    return pb.Datagram(header=header, packets=packets, padding=bytes(padding)).SerializeToString()


def publish(topic: str = TOPIC, payload: bytes = b"on", delivery: int = 3) -> pb.Packet:
    """A PUBLISH at QoS 1."""
    body = pb.Publish(topic=topic, payload=payload, publisher=5, sequence=9, qos=pb.QOS_AT_LEAST_ONCE)
    return pb.Packet(delivery=delivery, publish=body)


def sent(source: Address, destination: Address, payload: bytes) -> Packet:
    """The IP packet that carries the payload, built and dissected by scapy."""
    layer = IPv6 if ":" in source[0] else IP
    built = layer(src=source[0], dst=destination[0]) / UDP(sport=source[1], dport=destination[1]) / payload
    return layer(bytes(built))
