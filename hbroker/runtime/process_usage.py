"""CPU time and memory of this process, for its status and its telemetry."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

__all__ = ["process_usage"]

_STATM: Final = Path("/proc/self/statm")


def process_usage() -> dict[str, float | int | None]:
    """`cpu_s`: seconds of CPU time of all threads. `rss_bytes`: resident memory, from Linux's /proc; None on
    other systems."""
    return {"cpu_s": round(time.process_time(), 3), "rss_bytes": _resident_bytes()}


def _resident_bytes() -> int | None:
    """The second number of /proc/self/statm, which counts pages (proc(5))."""
    try:
        resident = int(_STATM.read_text().split()[1])
    except OSError:
        return None
    return resident * os.sysconf("SC_PAGE_SIZE")
