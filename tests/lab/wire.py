"""The packets that hosts sent, read from a recording of the relay with Python's protobuf."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

from hbroker._proto import packet_pb2 as pb
from hbroker.sim.lab import recorded

__all__ = ["packets_sent"]

_UDP_HEADER = 8


def packets_sent(recording: Path, host: str, since: int) -> Iterator[pb.Packet]:
    """The packets that the host with this address has sent since a time."""
    source = socket.inet_aton(host)
    for at, packet in recorded(recording):
        if at >= since and packet[12:16] == source and packet[9] == socket.IPPROTO_UDP:
            header = (packet[0] & 0x0F) * 4 + _UDP_HEADER
            yield from pb.Datagram.FromString(packet[header:]).packets
