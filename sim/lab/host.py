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
import struct
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Host", "why_impossible"]

QUEUE_PACKETS: Final = 8_192
"""Packets that may wait for the relay. Further ones are lost, as at any interface."""

AHEAD: Final = -5
"""Niceness of the programs on a host. A host has a processor of its own, and does not wait for other work."""

_TUN: Final = Path("/dev/net/tun")
_CLONE_NEWNET: Final = 0x4000_0000

# linux/if_tun.h
_TUNSETIFF: Final = 0x4004_54CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_INTERFACE: Final = "lan0"

_SET_UP: Final = f"""\
link set lo up
address add {{address}}/16 dev {_INTERFACE}
link set {_INTERFACE} mtu 1500 txqueuelen {QUEUE_PACKETS} up
"""
"""Commands for `ip -batch`."""


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
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_unshare, address).result()

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
    for program, package in (("nsenter", "util-linux"), ("ip", "iproute2")):
        if shutil.which(program) is None:
            return f"{program} (of {package}) is missing"
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
    with ExitStack() as opened:
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        opened.callback(os.close, namespace)
        tun = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
        opened.callback(os.close, tun)
        # struct ifreq (netdevice(7)): a name, and flags
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", _INTERFACE.encode(), _IFF_TUN | _IFF_NO_PI))
        commands = _SET_UP.format(address=address)
        done = subprocess.run(
            ["ip", "-batch", "-"], input=commands, text=True, capture_output=True, check=False
        )
        if done.returncode:
            raise OSError(f"ip: {done.stderr.strip()}")
        opened.pop_all()
    return Host(address, namespace, tun)
