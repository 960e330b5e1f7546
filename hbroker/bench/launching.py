"""Processes that are measured: started on CPUs of their own, and ended in every case."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from hbroker.bench.process import descendants
from hbroker.errors import HBrokerError

__all__ = ["NoAnswer", "announcement", "end_strays", "ended", "free_port", "launch", "on_cpus"]

_READY_S: Final = 15.0
_END_S: Final = 5.0
_LOG: Final = "broker.log"


class NoAnswer(HBrokerError):
    """The broker did not do what it was asked to do, so that it cannot be measured."""


@contextmanager
def launch(directory: Path, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process, and ends it if the context ends with an exception.

    Its standard output is `stdout` of the process; its standard error goes to a file in the directory.
    """
    with (directory / _LOG).open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    try:
        yield process
    except BaseException:
        ended(process)
        raise


def announcement(process: subprocess.Popen[bytes]) -> str:
    """The first line of a process's output. Raises NoAnswer if there is none in time."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _READY_S)
    line = process.stdout.readline().decode().strip() if ready else ""
    if not line:
        raise NoAnswer("the broker did not say that it is ready")
    return line


def ended(process: subprocess.Popen[bytes]) -> None:
    """Ends a process with SIGTERM. If it does not end, kills it and everything that it started."""
    family = descendants(process.pid)
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()


def end_strays() -> None:
    """Kills processes that this one has started and not noted, because an interrupt came just then."""
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


@contextmanager
def on_cpus(cpus: frozenset[int] | None) -> Iterator[None]:
    """Restricts this thread, and processes that it starts, to these CPUs within the block.

    None: the CPUs of this process.
    """
    before = os.sched_getaffinity(0)
    if cpus is None:
        cpus = frozenset(before)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_port(*, udp: bool = False) -> int:
    """A free port of TCP, or of UDP."""
    with socket.socket(type=socket.SOCK_DGRAM if udp else socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
