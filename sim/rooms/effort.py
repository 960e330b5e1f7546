"""How busy this process was, and how long it was kept from running.

An event loop that is late because it has too much to do, and one that is late because other processes have
the processors, need different remedies. The kernel reports how long a thread was ready to run and did not run
(`schedstat`, if Linux is built with it).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Effort", "Stopwatch"]

_SCHEDSTAT: Final = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True, slots=True)
class Effort:
    """Times in seconds.

    `cpu_s`: of the process. `loop_s`: of the calling thread, which runs the event loop. `starved_s`: for how
    long that thread was ready while other threads ran; None: the kernel does not report it.
    """

    seconds: float
    cpu_s: float
    loop_s: float
    starved_s: float | None

    @property
    def busy(self) -> float:
        """The share of a processor that the process used."""
        return self.cpu_s / max(self.seconds, 1e-9)

    @property
    def loop_busy(self) -> float:
        """The share of a processor that the event loop used."""
        return self.loop_s / max(self.seconds, 1e-9)

    @property
    def starved(self) -> float | None:
        """The share of the time in which the event loop was ready and did not run; None: unknown."""
        return None if self.starved_s is None else self.starved_s / max(self.seconds, 1e-9)


class Stopwatch:
    """Measures from its creation on, in the thread that it is about."""

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._cpu = time.process_time()
        self._loop = time.thread_time()
        self._starved = _starved_s()

    def read(self) -> Effort:
        """The effort since its creation."""
        starved = _starved_s()
        return Effort(
            time.monotonic() - self._wall,
            time.process_time() - self._cpu,
            time.thread_time() - self._loop,
            None if starved is None or self._starved is None else starved - self._starved,
        )


def _starved_s() -> float | None:
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
