"""The relay's process: takes packets out of one host's interface, and writes them into another's.

It has one thread, a clock, and the descriptor of every host's TUN device, and does what `Relay` decides. The
lab sends it one `Order` after another over a connection. It answers each when the order is in force, and ends
when the connection ends.
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
"""Packets that are read from one host before the next host."""


@dataclass(frozen=True, slots=True)
class SetRoutes:
    """Sets the routes of later packets."""

    routes: Routes


@dataclass(frozen=True, slots=True)
class Record:
    """Records to a file every packet that hosts send from now on, as it arrives at the relay, before the
    faults.

    The format is libpcap's, with raw IP packets. None: recording ends.
    """

    file: Path | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Asks for `Relay.counts`, which is the answer to every order."""


Order: TypeAlias = SetRoutes | Record | Counts


class Forwarder:
    """A relay, the TUN devices of its hosts by address, and the connection for orders."""

    def __init__(
        self, relay: Relay, tuns: Mapping[str, int], orders: Connection[Counter[str], Order]
    ) -> None:
        self._relay = relay
        self._tuns = tuns
        self._orders = orders
        self._recording: Recording | None = None

    def run(self) -> None:
        """Forwards packets until the connection for orders has ended."""
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
    """A file of packets: pcap-savefile(5), with times of this machine's monotonic clock."""

    _MAGIC: Final = 0xA1B2_C3D4
    _RAW_IP: Final = 101

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._file.write(struct.pack("=IHHiIII", self._MAGIC, 2, 4, 0, 0, _LARGEST_PACKET, self._RAW_IP))

    def write(self, now: int, packet: bytes) -> None:
        """Appends a packet that arrived at `now`, in microseconds."""
        self._file.write(_RECORD.pack(*divmod(now, 1_000_000), len(packet), len(packet)))
        self._file.write(packet)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


_RECORD: Final = struct.Struct("=IIII")
_FILE_HEADER_BYTES: Final = 24


def recorded(file: Path) -> Iterator[tuple[int, bytes]]:
    """The packets of a `Recording`, each with its time in microseconds."""
    data = file.read_bytes()
    at = _FILE_HEADER_BYTES
    while at < len(data):
        seconds, fraction, length, _ = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        yield seconds * 1_000_000 + fraction, data[at : at + length]
        at += length


def _now() -> int:
    return time.monotonic_ns() // 1_000
