"""IP packets from a network interface (Linux) or from a pcap file, as scapy packets.

A packet socket, packet(7), reads an interface without link headers. On the loopback interface the kernel
shows every packet twice, when it leaves and when it arrives; the first is left out. A filter in the kernel
passes only UDP. The kernel counts the packets that it dropped because the reader was slow: without that count
a capture proves nothing.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet
from scapy.utils import PcapReader

from hbroker.capture import packet_filter
from hbroker.errors import LocalError

__all__ = ["CaptureRefused", "Interface", "PcapFile", "read_file", "seen_at"]

_ETH_P_ALL: Final = 0x0003
_PACKET_OUTGOING: Final = 4
_SOL_PACKET: Final = 263
_PACKET_STATISTICS: Final = 6
_SO_RCVBUFFORCE: Final = 33
_BUFFER: Final = 64 * 1024 * 1024
_SO_TIMESTAMPNS: Final = 35
_NOTES: Final = socket.CMSG_SPACE(struct.calcsize("ll"))
_MOST: Final = 65_535
_PCAP_MAGIC: Final = 0xA1B2C3D4
_LINKTYPE_RAW: Final = 101
"""Packets begin with the IP header."""


class CaptureRefused(LocalError):
    """This user may not capture, the interface does not exist, or the file is not a pcap file."""


class Interface:
    """A capture of one interface, from its creation until `close`. A context manager. Raises CaptureRefused.

    `ports`: captures only packets from or to one of these UDP ports; if there are more than
    `packet_filter.MOST_PORTS`, or none, all of UDP.
    """

    def __init__(self, name: str = "lo", ports: Collection[int] = ()) -> None:
        self._skips_outgoing = name == "lo"
        self._missed = 0
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        except PermissionError:
            why = "this user may not capture (it takes root, or the capability CAP_NET_RAW)"
            raise CaptureRefused(why) from None
        try:
            packet_filter.attach(self._socket, ports)
            _widen(self._socket)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._socket.bind((name, _ETH_P_ALL))
        except OSError as error:
            self._socket.close()
            raise CaptureRefused(f"cannot capture on {name!r}: {error.strerror}") from None
        self._socket.setblocking(False)

    def __enter__(self) -> Interface:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, timeout: float) -> Packet | None:
        """The next packet, with its `time`; None: there was none within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                data, notes, _, place = self._socket.recvmsg(_MOST, _NOTES)
            except BlockingIOError:
                pause = deadline - time.monotonic()
                if pause <= 0 or not select.select([self._socket], [], [], pause)[0]:
                    return None
                continue
            if place[2] == _PACKET_OUTGOING and self._skips_outgoing:
                continue
            packet = IPv6(data) if data[0] >> 4 == 6 else IP(data)
            packet.time = _arrival(notes)
            return packet

    @property
    def missed(self) -> int:
        """Packets that found the buffer full, so far. On `lo` it counts both appearances of each packet."""
        # Each reading resets the kernel's count.
        _, dropped = struct.unpack("II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self._missed += dropped
        return self._missed

    def close(self) -> None:
        """Ends the capture. Idempotent."""
        self._socket.close()


def read_file(path: str) -> Iterator[Packet]:
    """The packets of a pcap or pcapng file. Raises OSError, CaptureRefused."""
    from scapy.error import Scapy_Exception

    try:
        with Path(path).open("rb") as file, PcapReader(file) as reader:  # type: ignore[arg-type]  # it takes both
            yield from reader
    except (Scapy_Exception, EOFError) as error:
        raise CaptureRefused(f"{path}: {error}") from None


class PcapFile:
    """Writes IP packets with their own times to a pcap file, each at once. Raises OSError."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("wb", buffering=0)  # noqa: SIM115  # `close` closes it
        self._file.write(struct.pack("<IHHiIII", _PCAP_MAGIC, 2, 4, 0, 0, _MOST, _LINKTYPE_RAW))

    def write(self, packet: Packet) -> None:
        """Appends a packet that begins with its IP header."""
        data = bytes(packet)
        self._file.write(struct.pack("<IIII", *seen_at(packet), len(data), len(data)) + data)

    def close(self) -> None:
        """Closes the file. Idempotent."""
        self._file.close()


def seen_at(packet: Packet) -> tuple[int, int]:
    """The time of a packet: seconds since the Unix epoch, and the microseconds of that second."""
    # Rounded: truncation would take a microsecond off a float each time it is written and read.
    return divmod(round(float(packet.time) * 1e6), 1_000_000)


def _arrival(notes: list[tuple[int, int, bytes]]) -> float:
    """The time at which the kernel received the packet, in seconds since the Unix epoch."""
    for level, kind, data in notes:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("ll", data)
            return float(seconds + nanoseconds / 1e9)
    return time.time()


def _widen(to: socket.socket) -> None:
    """Asks for a large buffer, or the largest that this user may have."""
    try:
        to.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    except PermissionError:
        to.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
