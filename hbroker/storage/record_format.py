"""The bytes of a file of records. A number after a field is its size in bytes.

    header   magic "hbrecord" | version 2 | kind 2 | flags 4 | file id 8 | CRC-32 of these 4      28 bytes
    record   mark AB 52 45 43 | length 4 | key length 4 | CRC-32 4 | key | value

All numbers are little-endian. `length` counts key and value. A record without a value ends its key. The CRC
of a record covers the file's id, both lengths, the key and the value. So a block of another file, which a
file system may show after a loss of power, is no valid record of this file. After damage, the reader searches
for the next mark that begins a valid record.

An incomplete record at the end of the file is a *torn tail*: the host lost power, or the process was killed,
during the write. Nobody was promised anything that relies on this record. All other bytes that are no valid
record are *damage*. In case of doubt they count as damage.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

__all__ = ["HEADER_BYTES", "MAGIC", "Header", "ParsedRecords", "header_from", "read_records", "record_bytes"]

MAGIC: Final = b"hbrecord"
VERSION: Final = 1
MARK: Final = b"\xabREC"
MOST_BYTES: Final = 16 << 20
"""The largest `length` of a record. A larger one is damage."""

_HEADER: Final = struct.Struct("<8sHHIQ")
_CRC: Final = struct.Struct("<I")
_HEAD: Final = struct.Struct("<4sIII")
_SEALED: Final = struct.Struct("<QII")
HEADER_BYTES: Final = _HEADER.size + _CRC.size

_INCOMPLETE: Final = 1


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file. `kind`: which records the file has. `is_incomplete`: records of it were lost."""

    kind: int
    id: int
    is_incomplete: bool = False

    def to_bytes(self) -> bytes:
        """The header as the bytes of the file."""
        packed = _HEADER.pack(MAGIC, VERSION, self.kind, self.is_incomplete * _INCOMPLETE, self.id)
        return packed + _CRC.pack(crc32(packed))


def header_from(data: bytes) -> Header | None:
    """The header of a file. None: it is incomplete or damaged, or of another version."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, kind, flags, file_id = _HEADER.unpack_from(data)
    is_whole = (crc32(data[: _HEADER.size]),) == _CRC.unpack_from(data, _HEADER.size)
    if not is_whole or (magic, version) != (MAGIC, VERSION):
        return None
    return Header(kind, file_id, bool(flags & _INCOMPLETE))


def record_bytes(file_id: int, key: bytes, value: bytes) -> bytes:
    """One record as the bytes of the file."""
    body = key + value
    return _HEAD.pack(MARK, len(body), len(key), _crc(file_id, len(key), body)) + body


@dataclass(slots=True)
class ParsedRecords:
    """The records that were read. `entries`: the last value of each key, in the order of these last records.
    `end`: the offset behind the last whole record. `damage`: (start, end) of each range that is no valid
    record."""

    entries: dict[bytes, bytes] = field(default_factory=dict)
    end: int = HEADER_BYTES
    damage: list[tuple[int, int]] = field(default_factory=list)
    torn: int = 0
    """The length of the torn tail, which begins at `end`."""


def read_records(data: bytes, file_id: int) -> ParsedRecords:
    """Reads all records behind the header."""
    found, at = ParsedRecords(), HEADER_BYTES
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
    """The size of the valid record at this offset; 0: there is none."""
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
    """Whether the rest of the file is a torn tail: the first bytes of one record, or zeros, which the file
    system allocated and never filled."""
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
