"""The memory of a process, for comparisons in tests."""

from __future__ import annotations

import psutil


def own_bytes(pid: int | None = None) -> int:
    """The bytes of anonymous memory that a process (by default this one) holds in RAM: its heaps and stacks.

    Pages of mapped files, such as libraries, are left out. The kernel drops them when memory is short, and
    reads them again.
    """
    memory = psutil.Process(pid).memory_info()
    return int(memory.rss - memory.shared)
