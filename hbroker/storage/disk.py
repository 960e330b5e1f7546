"""The system calls of this package, as an interface.

`LocalDisk` is the operating system's. Tests and the simulator have others, which lose what was not synced,
write less than they were asked to, or fail.

Files are made with mode 0600 and folders with 0700: what a node remembers has session ids in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Protocol

__all__ = ["FILE_MODE", "FOLDER_MODE", "Disk", "File", "LocalDisk", "make_folder"]

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


class File(Protocol):
    """An open file that is written at its end. Every method raises OSError."""

    def append(self, data: bytes) -> int:
        """Writes at the end; how many of the bytes were written. Fewer than all: the disk is full."""

    def truncate(self, size: int) -> None:
        """Cuts the file to so many bytes."""

    def sync(self) -> None:
        """Returns when everything that was written outlives a loss of power."""

    def close(self) -> None:
        """Gives the descriptor back."""


class Disk(Protocol):
    """Files by their paths. Every method raises OSError, among them FileNotFoundError."""

    def read(self, path: Path) -> bytes:
        """All of a file."""

    def size(self, path: Path) -> int:
        """Its length in bytes."""

    def open(self, path: Path) -> File:
        """A file that exists, to be appended to."""

    def create(self, path: Path) -> File:
        """An empty file. One that has the name already is replaced."""

    def overwrite(self, path: Path, data: bytes) -> None:
        """Writes the first bytes of a file in place, which takes no room on a full disk. It is created where
        it does not exist, and not synced."""

    def rename(self, source: Path, target: Path) -> None:
        """Atomically replaces `target`."""

    def link(self, source: Path, target: Path) -> None:
        """Gives a file a second name; one that another file has is taken from it."""

    def remove(self, path: Path) -> None:
        """Removes a file."""

    def sync_folder(self, folder: Path) -> None:
        """Returns when the names in a folder outlive a loss of power."""


class LocalDisk:
    """The operating system's files. See `Disk`."""

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def open(self, path: Path) -> File:
        return _LocalFile(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))

    def create(self, path: Path) -> File:
        path.unlink(missing_ok=True)  # A file that is there keeps its mode, and whoever has it open.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return _LocalFile(os.open(path, flags, FILE_MODE))

    def overwrite(self, path: Path, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        target.unlink(missing_ok=True)
        target.hardlink_to(source)

    def remove(self, path: Path) -> None:
        path.unlink()

    def sync_folder(self, folder: Path) -> None:
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
    """Makes a folder that only its owner can look into, also where it exists already. Those above it are made
    as the umask says. Raises OSError."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(FOLDER_MODE)
