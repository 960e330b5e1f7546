"""How far a process had got: when it was last alive, and how much of each file it knew to be on the disk.

A file of fixed size that is written in place each second, which needs no room on a full disk. It is not
synced: it is for the next run after a kill. After a loss of power it may be old, and then it demands less,
or be damaged, and then nothing is known.

When it was alive is told by a clock that goes on while the host sleeps and is never set, and by which boot of
the host it is; between two boots nobody can tell how much time has passed.
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
    """A time since the boot of a host, in microseconds. `boot`: 16 bytes that no other boot has."""

    boot: bytes
    us: int

    def since(self, earlier: Instant) -> int | None:
        """Microseconds between two times; None: nobody can tell."""
        is_same = self.boot == earlier.boot and self.us >= earlier.us
        return self.us - earlier.us if is_same else None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`synced`: by the kind of a file its id, and how many of its bytes were on the disk."""

    alive: Instant
    synced: Mapping[int, tuple[int, int]]

    def to_bytes(self) -> bytes:
        """As it is written."""
        packed = _HEAD.pack(_MAGIC, self.alive.boot, self.alive.us, len(self.synced))
        packed += b"".join(_MARK.pack(kind, *mark) for kind, mark in sorted(self.synced.items()))
        return packed + _CRC.pack(crc32(packed))


def load(disk: Disk, path: Path) -> Checkpoint | None:
    """What the last run wrote last; None: it is not known."""
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
    """Writes it in place. Raises OSError; then nothing is known of it any more: an old one would have the
    next run believe that this one had ended long ago."""
    try:
        disk.overwrite(path, checkpoint.to_bytes())
    except OSError:
        forget(disk, path)
        raise


def forget(disk: Disk, path: Path) -> None:
    """Removes it, if there is one and that is possible."""
    with suppress(OSError):
        disk.remove(path)
