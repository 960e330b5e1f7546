"""Processes that are measured: started on CPUs of their own, and ended whatever happens."""

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
    """The broker did not do what it was asked: there is nothing to measure."""


@contextmanager
def launch(directory: Path, command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process, and ends it if it does not come to serve: if the context ends with an exception. What
    it says is in its `stdout`, its complaints are in the directory."""
    with (directory / _LOG).open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    try:
        yield process
    except BaseException:
        ended(process)
        raise


def announcement(process: subprocess.Popen[bytes]) -> str:
    """The first line that a process says. Raises NoAnswer where none comes in time."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _READY_S)
    line = process.stdout.readline().decode().strip() if ready else ""
    if not line:
        raise NoAnswer("the broker did not say that it is ready")
    return line


def ended(process: subprocess.Popen[bytes]) -> None:
    """Asks it to end; where it does not, ends it and all that it started."""
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
    """Ends what this process has started and does not know of: an interrupt came just then."""
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


@contextmanager
def on_cpus(cpus: frozenset[int] | None) -> Iterator[None]:
    """This thread, and what is started meanwhile, with its threads and children, keeps to these CPUs, and
    sees no others. None: to those that this process has."""
    before = os.sched_getaffinity(0)
    if cpus is None:
        cpus = frozenset(before)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def free_port() -> int:
    """A TCP port that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
