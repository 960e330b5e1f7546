"""A round on a path with the MTU of Ethernet, instead of loopback's 65,536 bytes.

Broker and load run in a network namespace of their own (network_namespaces(7)), whose loopback has that MTU.
A namespace belongs to a thread, and processes begin in that of the thread that starts them; so the round has
a thread to itself, and nobody else is moved. It needs root.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from hbroker.bench.launching import NoAnswer

__all__ = ["obstacle", "with_mtu"]

T = TypeVar("T")

_CLONE_NEWNET: Final = 0x4000_0000


def obstacle() -> str | None:
    """Why this process may have no such namespace. (What forbids it all the same fails the round.)"""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    return None if shutil.which("ip") else "there is no `ip` (iproute2)"


def with_mtu(mtu: int, act: Callable[[], T]) -> T:
    """What the function returns, called where loopback has this MTU. Raises what it raises, and NoAnswer
    where there can be no namespace."""

    def inside() -> T:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET):
            raise NoAnswer(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        subprocess.run(["ip", "link", "set", "dev", "lo", "mtu", str(mtu), "up"], check=True)
        return act()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(inside).result()
