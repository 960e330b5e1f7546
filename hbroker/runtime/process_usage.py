"""CPU time and memory of this process, for its status and its telemetry."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["process_usage", "resident_bytes"]


def process_usage() -> dict[str, float]:
    """`cpu_s`: seconds of CPU time of all threads. `rss_bytes`: as `resident_bytes`."""
    return {"cpu_s": round(time.process_time(), 3), "rss_bytes": resident_bytes()}


def resident_bytes() -> int:
    """Resident memory; 0: it cannot be read now, for instance because no descriptor is left."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])  # proc(5)
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
