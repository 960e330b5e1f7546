"""A round on a path with Ethernet's MTU, instead of loopback's 65,536 bytes.

Broker and load run in a network namespace of their own (network_namespaces(7)) whose loopback has that MTU. A
namespace belongs to a thread, and a process starts in that of the thread that starts it. So the round runs in
a thread of its own, and no other thread is moved. It needs root.
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

T = TypeVar("T")

_CLONE_NEWNET: Final = 0x4000_0000


def obstacle() -> str | None:
    """Why this process cannot have such a namespace; None: it probably can. (Any other obstacle fails the
    round.)"""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    return None if shutil.which("ip") else "there is no `ip` (iproute2)"


def with_mtu(mtu: int, act: Callable[[], T]) -> T:
    """Calls a function where loopback has this MTU, and returns its result.

    Raises what it raises, and NoAnswer if the namespace cannot be made.
    """

    def inside() -> T:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_CLONE_NEWNET):
            raise NoAnswer(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        subprocess.run(["ip", "link", "set", "dev", "lo", "mtu", str(mtu), "up"], check=True)
        return act()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(inside).result()
