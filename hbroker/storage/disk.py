"""The system calls of this package, and the atomic replacement of a file.

Tests and the simulator have other disks, which lose what was not synced, write fewer bytes than asked, or
fail.

Files are created with mode 0600 and folders with 0700, because a node's state contains session ids.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

__all__ = [
    "FILE_MODE",
    "FOLDER_MODE",
    "Disk",
    "File",
    "make_folder",
    "replace_file",
    "write_all",
]


FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


class File(Protocol):
    """An open file, to which data is appended. Every method raises OSError."""

    def append(self, data: bytes) -> int:
        """Appends data. Returns how many bytes were written; fewer than all of them: the disk is full."""

    def truncate(self, size: int) -> None:
        """Truncates the file to `size` bytes."""

    def sync(self) -> None:
        """Returns when everything that was written would survive a loss of power."""

    def close(self) -> None:
        """Closes the descriptor."""


class Disk:
    """The operating system's files, by their paths. Every method raises OSError; a missing file raises
    FileNotFoundError. Other disks override all methods."""

    def read(self, path: Path) -> bytes:
        """The content of a file."""
        return path.read_bytes()

    def size(self, path: Path) -> int:
        """The length of a file in bytes."""
        return path.stat().st_size

    def open(self, path: Path) -> File:
        """Opens an existing file for appending."""
        return _LocalFile(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))

    def create(self, path: Path) -> File:
        """Creates an empty file and opens it for appending. Replaces an existing file of that name."""
        # Opening the old file would keep its mode, and the processes that have it open.
        path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return _LocalFile(os.open(path, flags, FILE_MODE))

    def overwrite(self, path: Path, data: bytes) -> None:
        """Overwrites the first bytes of a file in place, which needs no free space on a full disk. Creates
        the file if it does not exist. Does not sync."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Renames `source` to `target`, and replaces `target` atomically."""
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Gives a file a second name, `target`. If another file has that name, the other file loses it."""
        target.unlink(missing_ok=True)
        target.hardlink_to(source)

    def remove(self, path: Path) -> None:
        """Removes a file."""
        path.unlink()

    def sync_folder(self, folder: Path) -> None:
        """Returns when the names in a folder would survive a loss of power."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _LocalFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def append(self, data: bytes) -> int:
        return os.write(self._descriptor, data)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Creates a folder that only its owner can enter, or restricts an existing one in the same way. Missing
    folders above it are created under the umask. Raises OSError."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(FOLDER_MODE)


def replace_file(
    path: Path, chunks: Iterable[bytes], disk: Disk | None = None, *, is_lasting: bool = True
) -> int:
    """Replaces the content of a file by these chunks: a reader finds either the old content or all of the
    new. Returns the number of bytes.

    `is_lasting`: the new content must survive a loss of power. Raises OSError. The file is then unchanged,
    with one exception: if only the folder could not be synced, the file has the new content, and a loss of
    power may bring the old content back.
    """
    disk = disk or Disk()
    draft = path.with_name(f"{path.name}.new")
    try:
        file = disk.create(draft)
        try:
            size = sum(write_all(file, chunk) for chunk in chunks)
            if is_lasting:
                file.sync()  # Otherwise a loss of power could leave an empty file.
        finally:
            file.close()
        disk.rename(draft, path)
    except OSError:
        with suppress(OSError):
            disk.remove(draft)
        raise
    if is_lasting:  # Otherwise a loss of power could bring the old content back.
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
