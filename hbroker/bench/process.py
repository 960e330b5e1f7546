"""CPU time and memory of processes and the machine, from /proc (proc(5)); CPU time includes the kernel's
part."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = [
    "cpu_model",
    "cpu_seconds",
    "descendants",
    "machine_busy_seconds",
    "open_many_files",
    "resident_bytes",
    "sharpen_sleep",
]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PR_SET_TIMERSLACK: Final = 29


def cpu_seconds(pids: Iterable[int]) -> float:
    """utime + stime of all threads of these processes, also of those that have ended."""
    return sum(_ticks(pid) for pid in pids) / _TICKS


def descendants(pid: int) -> tuple[int, ...]:
    """The children of a process, their children, and so on; () if it has ended."""
    children = [
        int(child) for listed in Path(f"/proc/{pid}/task").glob("*/children") for child in _words(listed)
    ]
    return tuple(children) + tuple(below for child in children for below in descendants(child))


def resident_bytes(pids: Iterable[int]) -> int:
    """Resident memory of these processes in bytes. Shared memory counts for each of them."""
    return sum(int(_words(Path(f"/proc/{pid}/statm"))[1]) for pid in pids) * _PAGE


def machine_busy_seconds() -> float:
    """CPU time of all CPUs spent on processes, or stolen by the hypervisor."""
    line = Path("/proc/stat").read_text().split("\n", 1)[0]
    user, nice, system, _idle, _iowait, _irq, _softirq, steal = map(int, line.split()[1:9])
    return (user + nice + system + steal) / _TICKS


def cpu_model() -> str:
    """The model name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def sharpen_sleep() -> None:
    """Lets this process's sleeps end on time: by default the kernel adds up to 50 µs (prctl(2),
    PR_SET_TIMERSLACK)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def open_many_files() -> None:
    """Raises the limit of open files, of this process and those that it starts, as far as the system
    allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _words(path: Path) -> list[str]:
    return path.read_text().split()


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
