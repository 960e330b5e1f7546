"""Checks of the host itself."""

from __future__ import annotations

import ctypes
import platform
import resource
import socket
import time
from collections.abc import Callable
from typing import Final

from hbroker.runtime.hosts.checks.finding import Finding, error, ok, warning

__all__ = ["check_buffers", "check_clock", "check_open_files", "check_segmentation", "check_versions"]

WANTED_BUFFER: Final = 8 << 20
"""Bytes of a socket's buffer in each direction that the core asks for: `Options` of
`native/src/endpoint/socket`."""
FEW_FILES: Final = 1_024
MANY_FILES: Final = 65_536
"""Descriptors that are enough for a node, and for a gateway: it has a connection for each MQTT client."""
_SO_SNDBUFFORCE: Final = 32
_SO_RCVBUFFORCE: Final = 33
_UDP_SEGMENT: Final = 103
_UDP_GRO: Final = 104
_STA_UNSYNC: Final = 0x40
"""The bit of `status` of adjtimex(2): the clock is not synchronised."""
_TIMEX_BYTES: Final = 512
"""More than the size of `struct timex`."""
_STATUS_AT: Final = 5 * ctypes.sizeof(ctypes.c_long)
"""Before `status` it has `modes`, which is aligned to a long, and four longs (adjtimex(2))."""


def check_versions(version: str) -> Finding:
    """`version`: that of hbroker, whose core could be loaded."""
    return ok(
        "versions", f"hbroker {version}, Python {platform.python_version()}, Linux {platform.release()}"
    )


def check_buffers() -> Finding:
    """How much the kernel gives a socket: with CAP_NET_ADMIN all that the core asks for, and otherwise no
    more than the limits of the system."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        received = _given(probe, _SO_RCVBUFFORCE, socket.SO_RCVBUF)
        sent = _given(probe, _SO_SNDBUFFORCE, socket.SO_SNDBUF)
    if min(received, sent) >= WANTED_BUFFER:
        return ok("buffers", f"{WANTED_BUFFER >> 20} MiB in each direction")
    return warning(
        "buffers",
        f"a socket gets {received >> 10:,} KiB to receive and {sent >> 10:,} KiB to send, "
        f"of {WANTED_BUFFER >> 10:,}: bursts may be lost",
        f"sysctl -w net.core.rmem_max={WANTED_BUFFER} net.core.wmem_max={WANTED_BUFFER}",
    )


def _given(probe: socket.socket, force: int, option: int) -> int:
    """The bytes of a buffer that the core would get."""
    try:
        probe.setsockopt(socket.SOL_SOCKET, force, WANTED_BUFFER)
    except PermissionError:
        probe.setsockopt(socket.SOL_SOCKET, option, WANTED_BUFFER)
    # The kernel doubles what it was asked for (socket(7)).
    return probe.getsockopt(socket.SOL_SOCKET, option) // 2


def check_segmentation() -> Finding:
    """Whether one system call can send and receive many datagrams (UDP GSO and GRO)."""
    missing = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name, option, value in (("GSO", _UDP_SEGMENT, 0), ("GRO", _UDP_GRO, 1)):
            try:
                probe.setsockopt(socket.IPPROTO_UDP, option, value)
            except OSError:
                missing.append(name)
    if not missing:
        return ok("segmentation", "UDP GSO and GRO")
    remedy = "run Linux 5.0 or later, and no sandbox that filters setsockopt"
    return warning("segmentation", f"no UDP {' and '.join(missing)}: datagrams cost more", remedy)


def check_clock(status: Callable[[], int | None] | None = None) -> Finding:
    """Whether the wall clock is synchronised. Certificates and tokens are valid by it; leases are not.
    `status`: that of adjtimex(2); None: it cannot be read."""
    try:
        time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return error("clock", "there is no CLOCK_BOOTTIME, by which leases end", "run Linux")
    found = (status or _clock_status)()
    if found is None:
        return ok("clock", "CLOCK_BOOTTIME is there; whether the time is synchronised cannot be read here")
    if found & _STA_UNSYNC:
        what = "the time is not synchronised: certificates and tokens may count as expired"
        return warning("clock", what, "timedatectl set-ntp true")
    return ok("clock", "synchronised")


def _clock_status() -> int | None:
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(buffer) < 0:
            return None
    except AttributeError:
        return None
    return ctypes.c_int.from_buffer(buffer, _STATUS_AT).value


def check_open_files(*, has_gateway: bool) -> Finding:
    """How many files and connections a process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if has_gateway else FEW_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return ok("open files", "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,}")
    what = f"a process may open {soft:,} files, fewer than {wanted:,}"
    return warning("open files", what, f"ulimit -n {wanted}, or LimitNOFILE={wanted} in the unit")
