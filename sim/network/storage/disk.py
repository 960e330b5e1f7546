"""A disk with faults: a crash loses what was not synced, and at times the disk is full or returns errors.

A file has the data that its process reads, and the data that are on the disk. A folder has the names that are
on the disk. After `crash` a process finds what was synced. Of what was written since then it finds any
prefix, at times followed by the space that was allocated to the file and not written.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

from hbroker.storage.disk import Disk

__all__ = ["PowerLost", "SimulatedDisk"]


class PowerLost(Exception):
    """The process ends before this sync."""


class SimulatedDisk(Disk):
    """`random`: decides what a crash leaves of the data that were not synced."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names: dict[Path, _Content] = {}
        self._synced_names: dict[Path, _Content] = {}
        """The names that are on the disk."""
        self.free_bytes: int | None = None
        """The bytes for which it has room; None: no limit."""
        self.error: int | None = None
        """The errno with which every write and sync fails; None: none fails."""
        self.loses_power = False
        """Whether the power fails before the next sync."""
        self.syncs = 0
        """The number of syncs of files."""

    # Faults

    def crash(self) -> None:
        """The host loses power, and starts again."""
        names = dict(self._synced_names)
        for path in sorted(self._names.keys() | self._synced_names.keys()):
            # A name that was not synced may be on the disk all the same.
            if self._names.get(path) is not self._synced_names.get(path) and self._random.random() < 0.5:
                _set(names, path, self._names.get(path))
        for content in {id(content): content for content in names.values()}.values():
            content.crash(self._random)
        self._names, self._synced_names = names, dict(names)

    def damage(self, path: Path, data: bytes) -> None:
        """Something else wrote to the file."""
        self._names[path] = self._synced_names[path] = _Content(data)

    def paths(self) -> list[Path]:
        """The files that exist."""
        return sorted(self._names)

    # Disk

    def read(self, path: Path) -> bytes:
        return bytes(self._content(path).data)

    def size(self, path: Path) -> int:
        return len(self._content(path).data)

    def open(self, path: Path) -> _File:
        return _File(self, self._content(path))

    def create(self, path: Path) -> _File:
        self.fail()
        self._names[path] = _Content(b"")
        return self.open(path)

    def overwrite(self, path: Path, data: bytes) -> None:
        self.fail()
        content = self._names.setdefault(path, _Content(b""))
        content.data[: len(data)] = data

    def rename(self, source: Path, target: Path) -> None:
        self.fail()
        self._names[target] = self._names.pop(source)

    def link(self, source: Path, target: Path) -> None:
        self.fail()
        self._names[target] = self._content(source)

    def remove(self, path: Path) -> None:
        self._content(path)
        del self._names[path]

    def sync_folder(self, folder: Path) -> None:
        self.fail()
        for path in self._names.keys() | self._synced_names.keys():
            if path.parent == folder:
                _set(self._synced_names, path, self._names.get(path))

    def fail(self) -> None:
        """Raises OSError while the disk returns errors."""
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))

    def reserve(self, size: int) -> int:
        """The number of bytes, of `size`, for which there is room. Raises OSError if there is none."""
        self.fail()
        if self.free_bytes is None:
            return size
        written_bytes = min(size, self.free_bytes)
        if not written_bytes and size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.free_bytes -= written_bytes
        return written_bytes

    def _content(self, path: Path) -> _Content:
        content = self._names.get(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return content


class _Content:
    """One file, with any number of names. `synced`: its data on the disk."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.synced = bytes(data)

    def crash(self, random: Random) -> None:
        """Keeps what was synced, and of later data any prefix."""
        written = bytes(self.data)
        if written.startswith(self.synced):
            more = written[len(self.synced) :]
            kept = more[: random.randint(0, len(more))]
            hole = bytes(random.choice((0, 0, len(more) - len(kept))))
            self.data = bytearray(self.synced + kept + hole)
        else:
            self.data = bytearray(random.choice((self.synced, written)))
        self.synced = bytes(self.data)


class _File:
    def __init__(self, disk: SimulatedDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content

    def append(self, data: bytes) -> int:
        written_bytes = self._disk.reserve(len(data))
        self._content.data += data[:written_bytes]
        return written_bytes

    def truncate(self, size: int) -> None:
        if self._disk.free_bytes is not None:
            self._disk.free_bytes += len(self._content.data) - size
        del self._content.data[size:]

    def sync(self) -> None:
        if self._disk.loses_power:
            raise PowerLost
        self._disk.syncs += 1
        self._disk.fail()
        self._content.synced = bytes(self._content.data)

    def close(self) -> None:
        """Does nothing: there is nothing to release."""


def _set(names: dict[Path, _Content], path: Path, content: _Content | None) -> None:
    if content is None:
        names.pop(path, None)
    else:
        names[path] = content
