"""IP packets from a network interface (Linux) or from a pcap file, as scapy packets.

An interface is read with a packet socket, packet(7), without link headers. On the loopback interface the
kernel shows every packet twice, as it leaves and as it arrives, and the first is left out. A filter in the
kernel lets UDP alone pass, and the kernel counts what it dropped because the reader was slow: a capture
that does not say so would prove nothing.
"""

from __future__ import annotations

import ctypes
import select
import socket
import struct
import time
from collections.abc import Iterator
from typing import Final

from scapy.data import DLT_RAW
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet
from scapy.utils import PcapReader, PcapWriter

from hbroker.errors import LocalError

__all__ = ["CaptureRefused", "Interface", "open_writer", "read_file"]

_ETH_P_ALL: Final = 0x0003
_PACKET_OUTGOING: Final = 4
_SOL_PACKET: Final = 263
_PACKET_STATISTICS: Final = 6
_SO_ATTACH_FILTER: Final = 26
_SO_RCVBUFFORCE: Final = 33
_BUFFER: Final = 64 * 1024 * 1024
_MOST: Final = 65_535

# Classic BPF: IPv4 with protocol 17, or IPv6 with next header 17. (code, jump if true, if false, operand)
_UDP_ALONE: Final = (
    (0x30, 0, 0, 0),  # the first byte
    (0x54, 0, 0, 0xF0),  # its upper half is the version
    (0x15, 0, 2, 0x40),  # 4?
    (0x30, 0, 0, 9),  # the protocol
    (0x15, 3, 4, 17),
    (0x15, 0, 3, 0x60),  # 6?
    (0x30, 0, 0, 6),  # the next header
    (0x15, 0, 1, 17),
    (0x06, 0, 0, _MOST),
    (0x06, 0, 0, 0),
)


class CaptureRefused(LocalError):
    """This user may not capture, or there is no such interface."""


class Interface:
    """A capture of one interface, from the moment it is made until it is closed. A context manager.

    Raises CaptureRefused.
    """

    def __init__(self, name: str = "lo") -> None:
        self._skips_outgoing = name == "lo"
        self._missed = 0
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        except (PermissionError, AttributeError) as error:
            raise CaptureRefused(_why_not(error)) from None
        try:
            _attach(self._socket, _UDP_ALONE)
            _widen(self._socket)
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
        """The next packet, its `time` set; None: none came within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                data, place = self._socket.recvfrom(_MOST)
            except BlockingIOError:
                pause = deadline - time.monotonic()
                if pause <= 0 or not select.select([self._socket], [], [], pause)[0]:
                    return None
                continue
            if place[2] == _PACKET_OUTGOING and self._skips_outgoing:
                continue
            packet = IPv6(data) if data[0] >> 4 == 6 else IP(data)
            packet.time = time.time()
            return packet

    @property
    def missed(self) -> int:
        """Packets that came and found the buffer full, so far. (On `lo` it counts both sights of each.)"""
        # The kernel begins anew at each reading.
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
        with PcapReader(path) as reader:
            yield from reader
    except (Scapy_Exception, EOFError) as error:
        raise CaptureRefused(f"{path}: {error}") from None


def open_writer(path: str) -> PcapWriter:
    """Writes packets to a pcap file, each at once. Raises OSError."""
    return PcapWriter(path, linktype=DLT_RAW, sync=True)


def _why_not(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "this user may not capture (it takes root, or the capability CAP_NET_RAW)"
    return "capturing from an interface needs Linux; a file (-r) can be read anywhere"


def _attach(to: socket.socket, program: tuple[tuple[int, int, int, int], ...]) -> None:
    """Sets the socket's filter: struct sock_fprog of linux/filter.h."""
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    memory = ctypes.create_string_buffer(code)
    to.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(memory))
    )


def _widen(to: socket.socket) -> None:
    """Asks for a large buffer, and takes what there is."""
    try:
        to.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    except PermissionError:
        to.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
