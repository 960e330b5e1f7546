"""Starts a process by fork.

Loading the program takes longer than a node's join. So the launcher loads it once and forks: a node then runs
a few milliseconds later, and shares the program's memory. The fork is safe, because the launcher has one
thread and no event loop, and the child first closes the few descriptors that the launcher has open.

The child has a session of its own, so Ctrl-C in the terminal reaches only the launcher, which then stops the
processes in order. It has a log file of its own. The kernel kills it when the launcher dies
(PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn
from urllib.parse import quote

from hbroker.addresses import Address, format_address
from hbroker.config import AdminSettings, BridgeSettings, GatewaySettings, NodeSettings

Ready = Callable[[Address], None]
"""A node calls it once, when it serves, with the address to which it is bound."""

Listening = Callable[[tuple[str, ...]], None]
"""A gateway calls it once, when it accepts clients, with the URLs of its listeners."""

RemoteChanged = Callable[[str], None]
"""A bridge calls it with the address of the broker to which it has connected; empty: it is not connected."""

LEFT: Final = "left"
REGISTERED: Final = "registered"
ANSWERING: Final = "answering"
REMOTE: Final = "remote:"
"""Begins the word for a bridge's other broker. Its address follows, URL-quoted; none: it is not connected."""
STORAGE: Final = "storage:"
"""Begins the word for the disk. The fault follows, URL-quoted; no fault: the disk works again."""

Body = Callable[[NodeSettings, Ready], int]
"""Runs a node. Returns its exit code when it ends."""

GatewayBody = Callable[[GatewaySettings, Listening], int]
"""Runs a gateway. Returns its exit code when it ends."""

BridgeBody = Callable[[BridgeSettings, Callable[[], None], RemoteChanged], int]
"""Runs a bridge. Returns its exit code when it ends."""

AdminBody = Callable[[AdminSettings, socket.socket, Callable[[], None]], int]
"""Runs the HTTP API on a socket that listens. Calls its last argument once it answers. Returns its exit code
when it ends."""


@dataclass(frozen=True, slots=True)
class Bodies:
    """What runs in each kind of process."""

    node: Body
    gateway: GatewayBody
    bridge: BridgeBody
    admin: AdminBody


SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD})
"""The signals that the launcher handles. A child begins with the default handlers."""

_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Child:
    """A process. `ready`: the pipe on which it sends, one per line, where it serves, or that it does; that it
    has left; whether its disk fails; to which broker it is connected."""

    pid: int
    ready: int

    def read_reports(self) -> list[str]:
        """What it has reported, without waiting: an address, or URLs; `LEFT`; `STORAGE` with a fault;
        `REGISTERED`; `ANSWERING`; `REMOTE` with an address. Empty: there are none, or the process has
        ended."""
        try:
            return os.read(self.ready, 4096).decode().split()
        except BlockingIOError:
            return []

    def send(self, number: signal.Signals) -> None:
        """Sends a signal. The process exists, if only as a zombie, until `reap` has returned its exit
        code."""
        os.kill(self.pid, number)

    def reap(self) -> int | None:
        """Its exit code; below 0: the negated number of the signal that ended it.

        None: it runs. The caller must not call this again after an exit code.
        """
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


def spawn(body: Callable[[], int], log: int, kept: int | None = None) -> Child:
    """Forks a process that runs `body` and writes stdout and stderr to the descriptor `log`. `kept`: the
    descriptor of a socket that the process gets, too (`kept_socket`).

    Raises OSError.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    launcher = os.getpid()
    # Otherwise a signal between the fork and `_own_signals` would reach the launcher through the child's copy
    # of its wake-up descriptor.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _run_child(body, log, writer, launcher, kept)
    except OSError:
        os.close(reader)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writer)
    return Child(pid, reader)


def report_ready(address: Address) -> None:
    """Called in a node's process: the node serves at this address."""
    os.write(_READY_DESCRIPTOR, f"{format_address(address)}\n".encode())


def report_listening(urls: tuple[str, ...]) -> None:
    """Called in a gateway's process: the gateway accepts clients at these URLs."""
    os.write(_READY_DESCRIPTOR, f"{' '.join(urls)}\n".encode())


def report_left() -> None:
    """Called in a node's process: the node ends because of an order to leave, and must not be started
    again."""
    os.write(_READY_DESCRIPTOR, f"{LEFT}\n".encode())


def report_storage(fault: str) -> None:
    """Called in a node's process: the fault of its disk; empty: the disk works again."""
    os.write(_READY_DESCRIPTOR, f"{STORAGE}{quote(fault)}\n".encode())


def report_registered() -> None:
    """Called in a bridge's process: the network has its subscriptions."""
    os.write(_READY_DESCRIPTOR, f"{REGISTERED}\n".encode())


def kept_socket() -> socket.socket:
    """Called in a process that got a socket: that socket."""
    return socket.socket(fileno=_KEPT_DESCRIPTOR)


def report_answering() -> None:
    """Called in the process with the HTTP API: it answers."""
    os.write(_READY_DESCRIPTOR, f"{ANSWERING}\n".encode())


def report_remote(address: str) -> None:
    """Called in a bridge's process: it is connected to the broker at this address; empty: to none."""
    os.write(_READY_DESCRIPTOR, f"{REMOTE}{quote(address)}\n".encode())


def describe_exit(code: int) -> str:
    """The result of `Child.reap`, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _run_child(body: Callable[[], int], log: int, writer: int, launcher: int, kept: int | None) -> NoReturn:
    code = 1
    try:
        _die_with(launcher)
        _own_descriptors(log, writer, kept)
        _own_signals()
        code = body()
    except SystemExit as request:
        code = request.code if isinstance(request.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        # Not sys.exit: the outer frames are the launcher's, and their clean-up must not run in the child.
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


_READY_DESCRIPTOR: Final = 3
_KEPT_DESCRIPTOR: Final = 4


def _own_descriptors(log: int, writer: int, kept: int | None) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    # Moves them above those that are overwritten here.
    log, writer = (_above_standard(descriptor) for descriptor in (log, writer))
    kept = None if kept is None else _above_standard(kept)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(writer, _READY_DESCRIPTOR, inheritable=False)
    first_unused = _KEPT_DESCRIPTOR
    if kept is not None:
        os.dup2(kept, _KEPT_DESCRIPTOR, inheritable=False)
        first_unused += 1
    os.closerange(first_unused, os.sysconf("SC_OPEN_MAX"))


def _above_standard(descriptor: int) -> int:
    kept = []
    while descriptor <= _KEPT_DESCRIPTOR:
        kept.append(descriptor)
        descriptor = os.dup(descriptor)
    return descriptor


def _own_signals() -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    # The launcher forwards it, perhaps before the body handles it.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _die_with(launcher: int) -> None:
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != launcher:
        os._exit(1)  # The launcher died before the call of prctl.
