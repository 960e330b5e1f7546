"""Starting a node's process, by fork.

Python takes longer to load the program than a node takes to join. So the launcher loads it once, and forks: a
node runs a few milliseconds later, and the memory of the program is shared. That is sound because the
launcher has one thread, no event loop, and never more than the handful of descriptors that the child closes
first.

The child is a process of its own in every respect: its own session, so that Ctrl-C in the terminal reaches
the launcher alone, which then stops the nodes in order; its own log file; and the kernel kills it when the
launcher dies, however that happens (Linux: PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn
from urllib.parse import quote

from hbroker.config import Address, GatewaySettings, NodeSettings, format_address

Ready = Callable[[Address], None]
"""Called once by a node that serves, with the address it is bound to."""

Listening = Callable[[tuple[str, ...]], None]
"""Called once by a gateway that takes clients, with the URLs of its listeners."""

LEFT: Final = "left"
STORAGE: Final = "storage:"
"""Before what is wrong with the disk, with the spaces quoted; before nothing: it takes everything again."""

Body = Callable[[NodeSettings, Ready], int]
"""A node, as a blocking call that returns an exit code."""

GatewayBody = Callable[[GatewaySettings, Listening], int]
"""A gateway, likewise."""

SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD})
"""Those the launcher handles; a child begins with the system's defaults."""

_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Child:
    """A node's or gateway's process. `ready`: the pipe on which it says, a line each, where it serves, that
    it left, and whether its disk fails."""

    pid: int
    ready: int

    def read_words(self) -> list[str]:
        """What it has said (without waiting): an address, or URLs; `LEFT`; `STORAGE`. Empty: nothing, or it
        is gone."""
        try:
            return os.read(self.ready, 4096).decode().split()
        except BlockingIOError:
            return []

    def send(self, number: signal.Signals) -> None:
        """Sends a signal. The process exists, or is a zombie, until `reap` has returned its status."""
        os.kill(self.pid, number)

    def reap(self) -> int | None:
        """Its exit code, or less than 0: the signal that ended it.

        None: it runs. Not to be called after that.
        """
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


def spawn(body: Callable[[], int], log: int) -> Child:
    """Forks a process that runs `body` and writes stdout and stderr to the descriptor `log`.

    Raises OSError.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    launcher = os.getpid()
    # A signal between the fork and the child's reset would be reported to the launcher as if it were its own.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _run_child(body, log, writer, launcher)
    except OSError:
        os.close(reader)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(writer)
    return Child(pid, reader)


def report_ready(address: Address) -> None:
    """In a node's process: it serves."""
    os.write(_READY_DESCRIPTOR, f"{format_address(address)}\n".encode())


def report_listening(urls: tuple[str, ...]) -> None:
    """In a gateway's process: it takes clients."""
    os.write(_READY_DESCRIPTOR, f"{' '.join(urls)}\n".encode())


def report_left() -> None:
    """In the node's process: it ends because it was ordered to leave, and is not to be started again."""
    os.write(_READY_DESCRIPTOR, f"{LEFT}\n".encode())


def report_storage(fault: str) -> None:
    """In a node's process: what is wrong with its disk; empty: it takes everything again."""
    os.write(_READY_DESCRIPTOR, f"{STORAGE}{quote(fault)}\n".encode())


def describe_exit(code: int) -> str:
    """What `Child.reap` returned, in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _run_child(body: Callable[[], int], log: int, writer: int, launcher: int) -> NoReturn:
    code = 1
    try:
        _die_with(launcher)
        _own_descriptors(log, writer)
        _own_signals()
        code = body()
    except SystemExit as request:
        code = request.code if isinstance(request.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        # Not sys.exit: the frames below are the launcher's, and its clean-up is not the child's to do.
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


_READY_DESCRIPTOR: Final = 3


def _own_descriptors(log: int, writer: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    # Above those that are about to be overwritten, in case one of them is among the first four.
    log, writer = (_above_standard(descriptor) for descriptor in (log, writer))
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(writer, _READY_DESCRIPTOR, inheritable=False)
    os.closerange(_READY_DESCRIPTOR + 1, os.sysconf("SC_OPEN_MAX"))


def _above_standard(descriptor: int) -> int:
    kept = []
    while descriptor <= _READY_DESCRIPTOR:
        kept.append(descriptor)
        descriptor = os.dup(descriptor)
    return descriptor


def _own_signals() -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # It is passed on, perhaps before the body handles it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _die_with(launcher: int) -> None:
    if _libc is not None and _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != launcher:
        os._exit(1)  # It died before the kernel was asked.
