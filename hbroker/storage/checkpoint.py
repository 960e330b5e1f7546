"""The checkpoint of a process: when it was last alive, and how many bytes of each file were synced.

The checkpoint is a file of fixed size. The process overwrites it in place every second, which needs no free
space on a full disk. The file is not synced. It serves the next run after a kill. After a loss of power it
may be old or damaged. An old checkpoint demands fewer bytes of the files than were synced. A damaged one
counts as unknown.

The time is that of a clock that is never set and goes on while the host is suspended. The checkpoint also
holds an id of the host's boot, because times of two boots cannot be compared.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from hbroker.storage.disk import Disk

__all__ = ["Checkpoint", "Instant", "forget", "load", "save"]

_MAGIC: Final = b"hbcheck1"
_HEAD: Final = struct.Struct("<8s16sQI")
_MARK: Final = struct.Struct("<HQQ")
_CRC: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Instant:
    """A time since the boot of a host, in microseconds. `boot` is an id of 16 bytes that no other boot
    has."""

    boot: bytes
    us: int

    def since(self, earlier: Instant) -> int | None:
        """The microseconds from `earlier` to this time. None: unknown, because the boots differ or this time
        is the lower one."""
        is_same = self.boot == earlier.boot and self.us >= earlier.us
        return self.us - earlier.us if is_same else None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`alive`: when the process was last alive. `synced`: for each kind of file, the file's id and how many
    of its bytes were on the disk."""

    alive: Instant
    synced: Mapping[int, tuple[int, int]]

    def to_bytes(self) -> bytes:
        """The checkpoint as the bytes of its file."""
        packed = _HEAD.pack(_MAGIC, self.alive.boot, self.alive.us, len(self.synced))
        packed += b"".join(_MARK.pack(kind, *mark) for kind, mark in sorted(self.synced.items()))
        return packed + _CRC.pack(crc32(packed))


def load(disk: Disk, path: Path) -> Checkpoint | None:
    """The checkpoint that the last run wrote. None: the file is missing, unreadable or damaged."""
    try:
        data = disk.read(path)
        magic, boot, us, count = _HEAD.unpack_from(data)
        end = _HEAD.size + count * _MARK.size
        (crc,) = _CRC.unpack_from(data, end)
        marks = [_MARK.unpack_from(data, at) for at in range(_HEAD.size, end, _MARK.size)]
    except (OSError, struct.error):
        return None
    if magic != _MAGIC or crc != crc32(data[:end]):
        return None
    return Checkpoint(Instant(boot, us), {kind: (file_id, size) for kind, file_id, size in marks})


def save(disk: Disk, path: Path, checkpoint: Checkpoint) -> None:
    """Writes the checkpoint in place. Raises OSError; the file is then removed, because an old checkpoint
    would make the next run believe that this run had ended long ago."""
    try:
        disk.overwrite(path, checkpoint.to_bytes())
    except OSError:
        forget(disk, path)
        raise


def forget(disk: Disk, path: Path) -> None:
    """Removes the checkpoint's file. Ignores OSError."""
    with suppress(OSError):
        disk.remove(path)
