"""A simulated host: a network namespace with one interface, whose other end this process has.

A namespace belongs to threads, not to processes (namespaces(7)). So a short-lived thread unshares its own,
sets up the interface there, and leaves two descriptors: that of the namespace, by which programs start in it,
and that of the TUN device, which carries whole IP packets. The namespace has no name. It ends with everything
in it when its last descriptor and its last process are gone, however they end.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Host", "why_impossible"]

NETMASK: Final = "255.255.0.0"
MTU: Final = 1_500
QUEUE_PACKETS: Final = 8_192
"""Packets that may wait for the relay. Further ones are lost, as at any interface."""

AHEAD: Final = -5
"""Niceness of the programs on a host. A host has a processor of its own, and does not wait for other work."""

_TUN: Final = Path("/dev/net/tun")
_CLONE_NEWNET: Final = 0x4000_0000

# linux/if_tun.h, linux/sockios.h, linux/if.h
_TUNSETIFF: Final = 0x4004_54CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_SIOCSIFFLAGS: Final = 0x8914
_SIOCSIFADDR: Final = 0x8916
_SIOCSIFNETMASK: Final = 0x891C
_SIOCSIFMTU: Final = 0x8922
_SIOCSIFTXQLEN: Final = 0x8943
_IFF_UP: Final = 0x0001
_INTERFACE: Final = b"lan0"


@dataclass(frozen=True, slots=True)
class Host:
    """A host at an IPv4 address. Made by `Host.make`; call `close`."""

    address: str
    namespace: int
    """The descriptor of its network namespace."""
    tun: int
    """The descriptor of its TUN device. One IP packet a call: reading takes what the host sends, writing
    gives it what it receives."""

    @classmethod
    def make(cls, address: str) -> Host:
        """Makes a host that reaches the whole 10.x.0.0/16 network of `address`. Raises OSError."""
        made: list[Host] = []
        failed: list[OSError] = []

        def make() -> None:
            try:
                made.append(_unshare(address))
            except OSError as error:
                failed.append(error)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return made[0]

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` on this host, for a process that inherits `namespace`."""
        return ["nsenter", f"--net=/proc/self/fd/{self.namespace}", "nice", "-n", str(AHEAD), *command]

    def close(self) -> None:
        """Closes both descriptors. Processes that still run on the host keep it."""
        os.close(self.tun)
        os.close(self.namespace)


def why_impossible() -> str | None:
    """Why this process cannot make hosts; None: it can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    if shutil.which("nsenter") is None:
        return "nsenter (of util-linux) is missing"
    try:
        Host.make("10.255.255.254").close()
    except OSError as error:
        return f"no network namespace with a TUN device can be made here: {error}"
    return None


def _unshare(address: str) -> Host:
    """Gives the calling thread its own network namespace with an interface. The thread should then end."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)")
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    tun = -1
    try:
        tun = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, _TUNSETIFF, _flags(_INTERFACE, _IFF_TUN | _IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            for request, argument in (
                (_SIOCSIFFLAGS, _flags(b"lo", _IFF_UP)),
                (_SIOCSIFADDR, _address(address)),
                (_SIOCSIFNETMASK, _address(NETMASK)),
                (_SIOCSIFMTU, _number(MTU)),
                (_SIOCSIFTXQLEN, _number(QUEUE_PACKETS)),
                (_SIOCSIFFLAGS, _flags(_INTERFACE, _IFF_UP)),
            ):
                fcntl.ioctl(any_socket, request, argument)
    except OSError:
        for descriptor in (namespace, tun):
            if descriptor >= 0:
                os.close(descriptor)
        raise
    return Host(address, namespace, tun)


# struct ifreq (netdevice(7)): a name, and a union of which one member is used.


def _flags(interface: bytes, flags: int) -> bytes:
    return struct.pack("16sH22x", interface, flags)


def _number(value: int) -> bytes:
    return struct.pack("16si20x", _INTERFACE, value)


def _address(ip: str) -> bytes:
    return struct.pack("16sHH4s16x", _INTERFACE, socket.AF_INET, 0, socket.inet_aton(ip))
