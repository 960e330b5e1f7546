"""Checks of the disk that has the state of nodes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

from hbroker.runtime.hosts.checks.finding import Finding, error, ok, warning

__all__ = ["check_space", "check_sync"]

LITTLE_BYTES: Final = 1 << 30
NO_BYTES: Final = 64 << 20
SYNCS: Final = 16
SLOW_S: Final = 0.02
"""Seconds of one sync from which on a publisher of QoS 1 notices it (docs/durability.md)."""
_RECORD: Final = bytes(4_096)


def check_space(folder: Path) -> Finding:
    """How much is free where the state is, or will be."""
    folder = _existing(folder)
    free = shutil.disk_usage(folder).free
    what = f"{free / (1 << 30):.1f} GiB free in {folder}"
    if free < NO_BYTES:
        return error("disk space", what, f"df -h {folder}; nodes refuse messages that they cannot store")
    if free < LITTLE_BYTES:
        return warning("disk space", what, f"df -h {folder}; or set `store_bytes`")
    return ok("disk space", what)


def check_sync(folder: Path) -> Finding:
    """How long it takes to write and sync 4 KiB. Makes a file, and removes it."""
    folder = _existing(folder)
    times = []
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(SYNCS):
                began = time.perf_counter()
                os.write(file.fileno(), _RECORD)
                os.fdatasync(file.fileno())
                times.append(time.perf_counter() - began)
    except OSError as wrong:
        return error("disk sync", f"cannot write to {folder}: {wrong.strerror}", f"ls -ld {folder}; id")
    typical = median(times)
    what = f"a sync takes {typical * 1e3:.1f} ms (longest {max(times) * 1e3:.1f}) in {folder}"
    if typical > SLOW_S:
        remedy = "put --memory (or --state-dir) on a faster disk, or set `durability: os`"
        return warning("disk sync", what, remedy)
    return ok("disk sync", what)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above that exists."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.is_dir())
