"""A process of a node that takes over from the one before it, with its sockets (docs/hosts.md, ADR 40).

On SIGUSR2 a node starts its own command line again, with the program that is on the disk by now:

    predecessor                                   successor
    starts the successor, passes its sockets
    goes on                                       loads the program and its settings
                                          <─READY─
    ends in place: closes the sockets' threads,
    the store and the state files
                             ─the end of the stream─>
    ends                                          opens the store, and serves on the same sockets

The sockets are never closed, so datagrams that arrive in between wait in their buffers. If the successor ends
before READY, because the new program or the settings are wrong, the predecessor goes on.

Sockets may also have been kept by the service manager, while no process of the node was there.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Final, Self

from hbroker.addresses import Address
from hbroker.config import NodeSettings
from hbroker.errors import ConfigError
from hbroker.runtime.hosts.service_manager import SOCKETS, kept_descriptors, tell

__all__ = ["Predecessor", "Successor"]

_VARIABLE: Final = "HBROKER_SUCCEEDS"
"""Names the descriptors for a successor: the stream to its predecessor, then the sockets."""
_READY: Final = b"R"


class Predecessor:
    """Whatever had the node's sockets before this process. `stream`: to the process that it succeeds; None:
    there is none."""

    def __init__(self, stream: socket.socket | None, descriptors: Sequence[int]) -> None:
        self._stream = stream
        self._descriptors = list(descriptors)

    @classmethod
    def of_environment(cls) -> Self:
        """What this process was started with. A process that was started by hand has no predecessor. Raises
        ConfigError if the environment names something else."""
        text = os.environ.pop(_VARIABLE, "")
        kept = kept_descriptors()
        if not text:
            return cls(None, kept)
        try:
            stream, *sockets = map(int, text.split(","))
            for descriptor in (stream, *sockets):
                os.set_inheritable(descriptor, False)
            return cls(socket.socket(fileno=stream), sockets)
        except (ValueError, OSError):
            raise ConfigError(
                f"{_VARIABLE} names no descriptors of a predecessor", file="environment", remedy="unset it"
            ) from None

    def sockets_for(self, settings: NodeSettings) -> list[int]:
        """The sockets, if they are those that the settings want. Otherwise they are closed."""
        wanted = settings.workers if settings.listen[1] else len(self._descriptors)
        fits = len(self._descriptors) == wanted
        if fits and all(_is_bound(descriptor, settings.listen) for descriptor in self._descriptors):
            return self._descriptors
        for descriptor in self._descriptors:
            os.close(descriptor)
        if self._descriptors:
            tell("FDSTOREREMOVE=1", f"FDNAME={SOCKETS}")
        self._descriptors = []
        return []

    def await_end(self) -> None:
        """Tells the predecessor that this process can take over, and waits until it has let go of its files.
        It then has ended, or is about to."""
        if self._stream is None:
            return
        with self._stream as stream:
            stream.sendall(_READY)
            stream.recv(1)
        self._stream = None


class Successor:
    """Starts a successor of this process. `on_ready` is called once it can take over, and `on_failed` if it
    has ended instead. Both are called in the event loop."""

    def __init__(self, on_ready: Callable[[], None], on_failed: Callable[[], None]) -> None:
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._stream: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.is_ready = False
        """Whether the successor can take over."""

    @property
    def is_under_way(self) -> bool:
        """Whether a successor was started, and has not failed."""
        return self._stream is not None

    def start(self, descriptors: Sequence[int]) -> int:
        """Starts it, with the sockets of the node. Returns its process id. Raises OSError."""
        # The service manager waits for pings of whichever process is the main one.
        environment = {name: value for name, value in os.environ.items() if name != "WATCHDOG_PID"}
        ours, theirs = socket.socketpair()
        duplicates = [os.dup(descriptor) for descriptor in descriptors]
        try:
            passed = [theirs.fileno(), *duplicates]
            # As this one was started, with `python -m` or by the script of the command.
            self._process = subprocess.Popen(
                [sys.executable, *sys.orig_argv[1:]],
                pass_fds=passed,
                env={**environment, _VARIABLE: ",".join(map(str, passed))},
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            for duplicate in duplicates:
                os.close(duplicate)
        ours.setblocking(False)
        self._stream = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)
        return self._process.pid

    def let_go(self) -> None:
        """This process has closed its files, and ends. A successor that can take over is the main process of
        the unit from now on. Any other one is ended, too: something else than its start ends this process."""
        if self._stream is None or self._process is None:
            return
        if self.is_ready:
            tell(f"MAINPID={self._process.pid}")
            self._process.returncode = 0  # Nobody waits for it: it outlives this process.
        else:
            self._process.kill()
            self._process.wait()
        self._stream.close()

    def _read(self) -> None:
        assert self._stream is not None, "it is read while there is a successor"
        asyncio.get_running_loop().remove_reader(self._stream.fileno())
        try:
            answer = self._stream.recv(1)
        except OSError:
            answer = b""
        if answer == _READY:
            self.is_ready = True
            self._on_ready()
            return
        self._stream.close()
        self._stream = None
        assert self._process is not None, "it was started"
        self._process.wait()  # It has closed the stream because it has ended.
        self._on_failed()


def _is_bound(descriptor: int, listen: Address) -> bool:
    """Whether this is a UDP socket at the address; port 0: at any port of the host."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as probe:
            host, port = probe.getsockname()[:2]
            is_udp = probe.type == socket.SOCK_DGRAM
    except (OSError, ValueError):
        return False
    return is_udp and host == listen[0] and port in (listen[1] or port,)
