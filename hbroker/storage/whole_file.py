"""Replaces a file as a whole: a reader finds either the old content or all of the new content.

1. Write the new content under another name, and sync it. Without this sync a loss of power can leave an empty
   file.
2. Rename it to the file's name.
3. Sync the folder. Without this sync a loss of power can bring the old content back.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hbroker.storage.disk import Disk, File, LocalDisk

__all__ = ["replace", "write_all"]


def replace(path: Path, chunks: Iterable[bytes], disk: Disk | None = None, *, is_lasting: bool = True) -> int:
    """Replaces the content of a file by these chunks. Returns the number of bytes.

    `is_lasting`: the new content must survive a loss of power. Raises OSError. The file is then unchanged,
    with one exception: if only the folder could not be synced, the file has the new content, and a loss of
    power may bring the old content back.
    """
    disk = disk or LocalDisk()
    draft = path.with_name(f"{path.name}.new")
    try:
        file = disk.create(draft)
        try:
            size = sum(write_all(file, chunk) for chunk in chunks)
            if is_lasting:
                file.sync()
        finally:
            file.close()
        disk.rename(draft, path)
    except OSError:
        with suppress(OSError):
            disk.remove(draft)
        raise
    if is_lasting:
        disk.sync_folder(path.parent)
    return size


def write_all(file: File, data: bytes) -> int:
    """Appends all of the data. Returns its length. Raises OSError, with ENOSPC if the disk is full; some of
    the data may then have been written."""
    written = 0
    while written < len(data):
        more = file.append(data[written:] if written else data)
        if not more:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += more
    return written
