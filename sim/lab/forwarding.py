"""The relay's process: packets out of one host's interface, through the faults, into another's.

It has a thread, a clock and the descriptors of every host's TUN device, and does what `Relay` says. Whoever
started it tells it over a connection what to do, one `Order` after another, each answered once it is in
force. It ends when that connection does.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from ..network.relay import Relay, Routes

__all__ = ["Counts", "Forwarder", "Order", "Record", "SetRoutes", "recorded"]

_LARGEST_PACKET: Final = 65_535
_READS: Final = 64
"""Packets taken from one host before another's turn comes."""


@dataclass(frozen=True, slots=True)
class SetRoutes:
    """Packets that come from now on go so."""

    routes: Routes


@dataclass(frozen=True, slots=True)
class Record:
    """Every packet that a host sends from now on is written to a file as it comes to the relay, before the
    faults; in the format of libpcap, of raw IP packets. None: no longer."""

    file: Path | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Asks for no more than the counts that answer every order: `Relay.counts`."""


Order: TypeAlias = SetRoutes | Record | Counts


class Forwarder:
    """A relay, its hosts' TUN devices by address, and the connection that its orders come over."""

    def __init__(
        self, relay: Relay, tuns: Mapping[str, int], orders: Connection[Counter[str], Order]
    ) -> None:
        self._relay = relay
        self._tuns = tuns
        self._orders = orders
        self._recording: Recording | None = None

    def run(self) -> None:
        """Returns when the connection has ended."""
        readable = [*self._tuns.values(), self._orders.fileno()]
        while True:
            due = self._relay.poll_timeout()
            pause = None if due is None else max(due - _now(), 0) / 1e6
            ready, _, _ = select.select(readable, [], [], pause)
            for descriptor in ready:
                if descriptor != self._orders.fileno():
                    self._take_packets(descriptor)
                elif not self._obey():
                    return
            self._send_packets()

    def _take_packets(self, tun: int) -> None:
        with suppress(BlockingIOError):
            for _ in range(_READS):
                packet = os.read(tun, _LARGEST_PACKET)
                now = _now()
                if self._recording is not None:
                    self._recording.write(now, packet)
                self._relay.handle_packet(now, packet)

    def _send_packets(self) -> None:
        while (departure := self._relay.poll_transmit(_now())) is not None:
            address, packet = departure
            if address in self._tuns:
                os.write(self._tuns[address], packet)

    def _obey(self) -> bool:
        try:
            order = self._orders.recv()
        except (EOFError, ConnectionResetError):
            return False
        match order:
            case SetRoutes(routes):
                self._relay.routes = routes
            case Record(file):
                if self._recording is not None:
                    self._recording.close()
                self._recording = None if file is None else Recording(file)
        self._orders.send(self._relay.counts)
        return True


class Recording:
    """A file of packets. (pcap-savefile(5); times on this machine's monotonic clock.)"""

    _MAGIC: Final = 0xA1B2_C3D4
    _RAW_IP: Final = 101

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._file.write(struct.pack("=IHHiIII", self._MAGIC, 2, 4, 0, 0, _LARGEST_PACKET, self._RAW_IP))

    def write(self, now: int, packet: bytes) -> None:
        """Adds a packet that came at `now`."""
        self._file.write(_RECORD.pack(*divmod(now, 1_000_000), len(packet), len(packet)))
        self._file.write(packet)

    def close(self) -> None:
        """All that was written can be read."""
        self._file.close()


_RECORD: Final = struct.Struct("=IIII")
_FILE_HEADER_BYTES: Final = 24


def recorded(file: Path) -> Iterator[tuple[int, bytes]]:
    """What a `Recording` holds: when each packet came, in microseconds, and the packet."""
    data = file.read_bytes()
    at = _FILE_HEADER_BYTES
    while at < len(data):
        seconds, fraction, length, _ = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        yield seconds * 1_000_000 + fraction, data[at : at + length]
        at += length


def _now() -> int:
    return time.monotonic_ns() // 1_000
