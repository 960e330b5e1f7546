"""What processes and the machine cost, from /proc (proc(5)): CPU time with the kernel's part, and memory."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = [
    "cpu_model",
    "cpu_seconds",
    "descendants",
    "machine_busy_seconds",
    "resident_bytes",
    "sharpen_sleep",
]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_PR_SET_TIMERSLACK: Final = 29


def cpu_seconds(pids: Iterable[int]) -> float:
    """utime + stime of all threads of these processes, those that have ended included."""
    return sum(_ticks(pid) for pid in pids) / _TICKS


def descendants(pid: int) -> tuple[int, ...]:
    """The children of a process, theirs, and so on; () if it has ended."""
    children = [
        int(child) for listed in Path(f"/proc/{pid}/task").glob("*/children") for child in _words(listed)
    ]
    return tuple(children) + tuple(below for child in children for below in descendants(child))


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory that these processes have in RAM; what they share counts once for each."""
    return sum(int(_words(Path(f"/proc/{pid}/statm"))[1]) for pid in pids) * _PAGE


def machine_busy_seconds() -> float:
    """Up to now, from some moment on: the time in which the CPUs did not idle, or that the hypervisor took
    from them, all together.

    What was spent is no measure: most kernels see at each tick who runs, and what is done every 500 µs runs
    at each of them, or at none. Of a CPU that idles they stop the tick, and know how long that was (NO_HZ).
    """
    cpus = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
    idle, iowait = map(int, cpus[0][4:6])
    return time.monotonic() * (len(cpus) - 1) - (idle + iowait) / _TICKS


def cpu_model() -> str:
    """What the processor calls itself."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def sharpen_sleep() -> None:
    """Lets this process's sleeps end on time: the kernel otherwise adds up to 50 µs (prctl(2),
    PR_SET_TIMERSLACK)."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _words(path: Path) -> list[str]:
    return path.read_text().split()


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
