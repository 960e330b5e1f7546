"""How long threads waited for a CPU: the part of a delay that a busy machine causes.

For each thread the kernel counts the time for which it could run and did not (`/proc/PID/task/TID/schedstat`,
the second number). It adds a wait when the wait ends. A thread here reads these files every few milliseconds.
Without such files the waits count as zero.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.background import Background

__all__ = ["Starvation", "waited_s"]

_EVERY_S: Final = 0.02


def waited_s(pid: int) -> float:
    """How long the first thread of a process has waited for a CPU since the process was started."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:  # the process has ended
        return 0.0


class Starvation(Background):
    """Watches the threads of some processes."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__()
        self._tasks = [Path(f"/proc/{pid}/task") for pid in pids]
        self._samples: list[tuple[int, dict[str, int]]] = []

    def own_s(self, begin: int, end: int) -> float:
        """The time between `begin` and `end`, less the longest wait in it."""
        return (end - begin) / 1e9 - self.longest_wait_s(begin, end)

    def longest_wait_s(self, begin: int, end: int) -> float:
        """The longest wait of one thread between `begin` and `end` (nanoseconds of the monotonic clock)."""
        before = next((waited for at, waited in reversed(self._samples) if at <= begin), {})
        after = next((waited for at, waited in self._samples if at >= end), {})
        waits = [waited - before[thread] for thread, waited in after.items() if thread in before]
        return min(max(waits, default=0), end - begin) / 1e9

    def _run(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            began = time.monotonic_ns()
            waited: dict[str, int] = {}
            for thread in (thread for task in self._tasks for thread in task.glob("*")):
                with suppress(OSError):  # the process has ended
                    waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
            self._samples.append((began, waited))
