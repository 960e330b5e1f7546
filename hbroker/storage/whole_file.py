"""A file that is replaced as a whole: a reader finds what was there before, or all that is there now.

The new content is written under another name and synced, then it takes the name, and the folder is synced.
Without the first sync a loss of power can leave an empty file under the name; without the second, the old.
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
    """Puts the chunks in the place of a file's content; the number of bytes.

    `is_lasting`: it is to outlive a loss of power. Raises OSError: then the file is as it was, or, where the
    folder alone could not be synced, a loss of power may bring back what it was.
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
    """Appends all of the data; its length. Raises OSError, ENOSPC where the disk takes no more; part of it
    may have been written."""
    written = 0
    while written < len(data):
        more = file.append(data[written:] if written else data)
        if not more:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written += more
    return written
