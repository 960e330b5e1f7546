"""What this process costs its host: processor time and memory, for a node's account of itself (DESIGN §8)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

__all__ = ["process_usage"]

_STATM: Final = Path("/proc/self/statm")


def process_usage() -> dict[str, float | int | None]:
    """`cpu_s`: seconds of processor time of all threads. `rss_bytes`: memory that it holds now; None where
    the system does not tell (it is read from Linux's /proc)."""
    return {"cpu_s": round(time.process_time(), 3), "rss_bytes": _resident_bytes()}


def _resident_bytes() -> int | None:
    """proc(5): the second number of statm, in pages."""
    try:
        resident = int(_STATM.read_text().split()[1])
    except OSError:
        return None
    return resident * os.sysconf("SC_PAGE_SIZE")
