"""What a process tells the service manager, and what it gets from it: sd_notify(3), sd_listen_fds(3),
sd_watchdog_enabled(3).

Each message is one datagram on the socket that `NOTIFY_SOCKET` names. Without it nothing is sent. That the
service manager does not take a message is no reason to end, so errors are ignored.
"""

from __future__ import annotations

import array
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

__all__ = ["SOCKETS", "Watchdog", "kept_descriptors", "tell"]

SOCKETS: Final = "hbroker"
"""The name under which the service manager keeps the sockets of a node."""
_FIRST_DESCRIPTOR: Final = 3


def tell(*assignments: str, descriptors: Sequence[int] = ()) -> None:
    """Sends assignments, as in `READY=1`. `descriptors`: go with them."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = f"\0{path[1:]}" if path.startswith("@") else path
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.sendmsg(["\n".join(assignments).encode()], rights, 0, address)


def kept_descriptors() -> list[int]:
    """The descriptors that the service manager has kept since an earlier run of this unit, under the name
    `SOCKETS`. From now on no child of this process inherits them, or learns of them."""
    names = os.environ.pop("LISTEN_FDNAMES", "").split(":")
    count, pid = os.environ.pop("LISTEN_FDS", ""), os.environ.pop("LISTEN_PID", "")
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    descriptors = list(range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count)))
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return [descriptor for descriptor, name in zip(descriptors, names, strict=False) if name == SOCKETS]


class Watchdog:
    """Tells the service manager that the process makes progress. If it does not for too long, the service
    manager ends it, and starts it again."""

    def __init__(self) -> None:
        pid, period = os.environ.get("WATCHDOG_PID", ""), os.environ.get("WATCHDOG_USEC", "")
        is_for_this = not pid or pid == str(os.getpid())
        self.interval_s: float | None = (
            int(period) / 2e6 if is_for_this and period.isdecimal() and int(period) > 0 else None
        )
        """Seconds between two pings: half of what the service manager waits for (sd_watchdog_enabled(3)).
        None: it waits for none."""
        self._next = 0.0

    def ping(self) -> None:
        """The process has made progress. Sends a ping if one is due."""
        if self.interval_s is None:
            return
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self.interval_s
            tell("WATCHDOG=1")
