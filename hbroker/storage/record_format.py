"""The bytes of a file of records.

    header   magic "hbrecord" | version 2 | kind 2 | flags 4 | file id 8 | CRC-32 of these 4      28 bytes
    record   mark AB 52 45 43 | length 4 | key length 4 | CRC-32 4 | key | value

All numbers are little-endian. `length` counts key and value. A record without a value says that its key has
ended. The CRC of a record is taken over the file's id, both lengths, key and value: so a block of another
file, which a file system may show after a loss of power, is no record of this one. The mark is where reading
goes on behind damage.

A record at the end that is not whole is a *torn tail*: it was being written when the host lost power, or the
process its life, so nobody was promised anything on it. Everything else that is no record is *damage*. What
is in doubt counts as damage.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

__all__ = ["HEADER_BYTES", "MAGIC", "Header", "Reading", "header_from", "read_records", "record_bytes"]

MAGIC: Final = b"hbrecord"
VERSION: Final = 1
MARK: Final = b"\xabREC"
MOST_BYTES: Final = 16 << 20
"""Of a record: a length above it is damage."""

_HEADER: Final = struct.Struct("<8sHHIQ")
_CRC: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<4sIII")
_SEALED: Final = struct.Struct("<QII")
HEADER_BYTES: Final = _HEADER.size + _CRC.size

_INCOMPLETE: Final = 1


@dataclass(frozen=True, slots=True)
class Header:
    """Of a file. `kind`: what its records are. `is_incomplete`: records were lost that nobody can know."""

    kind: int
    id: int
    is_incomplete: bool = False

    def to_bytes(self) -> bytes:
        """As it is written."""
        packed = _HEADER.pack(MAGIC, VERSION, self.kind, self.is_incomplete * _INCOMPLETE, self.id)
        return packed + _CRC.pack(crc32(packed))


def header_from(data: bytes) -> Header | None:
    """The header at the beginning of a file; None: it is not whole, or of a later version."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, kind, flags, file_id = _HEADER.unpack_from(data)
    is_whole = (crc32(data[: _HEADER.size]),) == _CRC.unpack_from(data, _HEADER.size)
    if not is_whole or (magic, version) != (MAGIC, VERSION):
        return None
    return Header(kind, file_id, bool(flags & _INCOMPLETE))


def record_bytes(file_id: int, key: bytes, value: bytes) -> bytes:
    """One record as it is written."""
    body = key + value
    return _HEAD.pack(MARK, len(body), len(key), _crc(file_id, len(key), body)) + body


@dataclass(slots=True)
class Reading:
    """What the records of a file say. `entries`: the last value of each key, in the order in which they were
    written. `end`: where the last whole record ends. `damage`: from where to where there is none."""

    entries: dict[bytes, bytes] = field(default_factory=dict)
    end: int = HEADER_BYTES
    damage: list[tuple[int, int]] = field(default_factory=list)
    torn: int = 0
    """Bytes of a torn tail, from `end` on."""


def read_records(data: bytes, file_id: int) -> Reading:
    """Everything behind the header."""
    found, at = Reading(), HEADER_BYTES
    while at < len(data):
        size = _record_at(data, at, file_id)
        if size:
            found.end = at = at + size
            _put(found.entries, data, at - size)
            continue
        next_at = _next_record(data, at, file_id)
        if next_at is None and _is_torn(data, at):
            found.torn = len(data) - at
            return found
        end = len(data) if next_at is None else next_at
        found.damage.append((at, end))
        at = end
    return found


def _put(entries: dict[bytes, bytes], data: bytes, at: int) -> None:
    _, length, key_length, _ = _HEAD.unpack_from(data, at)
    start = at + _HEAD.size
    key, value = data[start : start + key_length], data[start + key_length : start + length]
    entries.pop(key, None)
    if value:
        entries[key] = value


def _record_at(data: bytes, at: int, file_id: int) -> int:
    """The size of the record there; 0: there is none."""
    if at + _HEAD.size > len(data):
        return 0
    mark, length, key_length, crc = _HEAD.unpack_from(data, at)
    end = at + _HEAD.size + length
    if mark != MARK or not key_length <= length <= MOST_BYTES or end > len(data):
        return 0
    body = data[at + _HEAD.size : end]
    return end - at if crc == _crc(file_id, key_length, body) else 0


def _next_record(data: bytes, at: int, file_id: int) -> int | None:
    found = data.find(MARK, at + 1)
    while found >= 0 and not _record_at(data, found, file_id):
        found = data.find(MARK, found + 1)
    return found if found >= 0 else None


def _is_torn(data: bytes, at: int) -> bool:
    """Whether the rest is the beginning of a record that was not written to its end: its first bytes and
    nothing more, or room that was given to the file and never filled."""
    rest = data[at:]
    if not rest.strip(b"\0"):
        return True
    if len(rest) < _HEAD.size:
        return MARK.startswith(rest[: len(MARK)])
    mark, length, key_length, _ = _HEAD.unpack_from(rest)
    is_head = bool(mark == MARK and key_length <= length <= MOST_BYTES)
    return is_head and len(rest) < _HEAD.size + int(length)


def _crc(file_id: int, key_length: int, body: bytes) -> int:
    return crc32(body, crc32(_SEALED.pack(file_id, len(body), key_length)))
