"""The memory of a process, as tests compare it."""

from __future__ import annotations

import psutil


def own_bytes(pid: int | None = None) -> int:
    """Bytes that a process (this one, by default) holds in RAM of its own: its heaps and stacks.

    Pages of files that it has mapped, as its libraries, are left out: the kernel drops them when the machine
    is short of memory, and reads them again, whatever the process does.
    """
    memory = psutil.Process(pid).memory_info()
    return int(memory.rss - memory.shared)
