"""A file of records with keys. Records are appended, and the last record of each key counts.

An append writes all of its records, or none: if a write fails, the file is truncated to where it ended
before. Once the file is about twice as long as its live records, it is replaced by a file of those records
alone.

Opening a file reports what is wrong with it, and never prevents the start. A torn tail is truncated. A
damaged file is kept under another name. The records that are whole go into a new file, which is marked as
incomplete until `complete` is called. So if the process starts again in between, it also learns that records
were lost.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hbroker.storage.disk import Disk, File, replace_file, write_all
from hbroker.storage.record_format import HEADER_BYTES, Header, header_from, read_records, record_bytes

__all__ = ["Damage", "Entry", "FileContent", "RecordFile"]

Entry = tuple[bytes, bytes]
"""(key, value). An empty value ends the key."""

SLACK_BYTES: Final = 1 << 20
"""A file is replaced once its length exceeds twice its length when it was last opened or replaced (counting
live records alone), plus this many bytes."""
MOST_KEPT: Final = 8
"""How many damaged files are kept. A further one replaces the last of them."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What was wrong with a file. `offset` and `length`: the damaged bytes; both 0: the whole file, or the
    file is missing. `kept`: the path of the kept copy; None: there was no file, or it could not be kept."""

    path: Path
    offset: int
    length: int
    problem: str
    kept: Path | None

    def __str__(self) -> str:
        kept = "" if self.kept is None else f"; it is kept as {self.kept}"
        return f"{self.path}: {self.problem} at byte {self.offset} ({self.length} bytes){kept}"


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a file. `is_incomplete`: records were lost, now or at an earlier start. `damage`: what
    was found damaged now. `torn`: how many bytes of a torn tail were truncated."""

    entries: dict[bytes, bytes] = field(default_factory=dict)
    is_incomplete: bool = False
    damage: tuple[Damage, ...] = ()
    torn: int = 0


class RecordFile:
    """One file of records. `kind` distinguishes its records from those of other files. `new_id` returns a
    random number of 64 bits."""

    def __init__(
        self,
        path: Path,
        kind: int,
        *,
        new_id: Callable[[], int],
        disk: Disk | None = None,
        slack_bytes: int = SLACK_BYTES,
    ) -> None:
        self.path: Final = path
        self._kind = kind
        self._disk = disk or Disk()
        self._new_id = new_id
        self._slack_bytes = slack_bytes
        self.header = Header(kind, 0)
        """The id changes with each `replace`. 0: there is no file."""
        self._file: File | None = None
        self.size = 0
        """The length in bytes of the header and the whole records."""
        self._replace_at = slack_bytes
        self._is_suspect = False
        """A sync or a truncation has failed, so it is unknown which of the last bytes are on the disk."""
        self._rescued: dict[bytes, bytes] | None = None
        """The whole records of a damaged file that could not be replaced yet."""

    # Change

    def open(self, at_least: Callable[[int], int] = lambda file_id: 0) -> FileContent:
        """Reads the file and repairs it. `at_least(file_id)` returns how many bytes of that file were known
        to be synced (0: unknown); a shorter file counts as damaged. Raises OSError, except for EIO: a file
        that cannot be read counts as damaged."""
        self.close()
        try:
            data = self._disk.read(self.path)
        except FileNotFoundError:
            return self._missing(at_least)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return self._repair([(0, 0)], {}, "it cannot be read")
        header = header_from(data)
        if header is None or header.kind != self._kind:
            return self._repair([(0, len(data))], {}, "this is no such file, or its header is damaged")
        self.header = header
        found = read_records(data, header.id)
        synced = at_least(header.id)
        if found.torn and found.end < synced:
            found.damage.append((found.end, len(data)))
        elif len(data) < synced:
            found.damage.append((len(data), synced))
        if found.damage:
            return self._repair(found.damage, found.entries, "these bytes are no records")
        self.size = found.end
        self._replace_at = 2 * _length(found.entries) + self._slack_bytes
        try:
            self._file = self._disk.open(self.path)
            if found.torn:
                self._file.truncate(found.end)
                self._file.sync()
        except OSError:
            self._is_suspect = True
        return FileContent(found.entries, header.is_incomplete, (), found.torn)

    def append(self, entries: Iterable[Entry]) -> None:
        """Appends all entries, or none. Raises OSError."""
        self._make_sound()
        if self._file is None:
            self._reopen()
        assert self._file is not None, "a file that was opened again is open"
        data = b"".join(record_bytes(self.header.id, key, value) for key, value in entries)
        try:
            self.size += write_all(self._file, data)
        except OSError:
            self._cut_off()
            raise

    def sync(self) -> None:
        """Returns when everything that was appended would survive a loss of power. Raises OSError."""
        self._make_sound()
        if self._file is not None:
            try:
                self._file.sync()
            except OSError:
                self._is_suspect = True  # A second sync would succeed although data was lost.
                raise

    def replace(self, entries: Iterable[Entry], *, is_incomplete: bool = False) -> None:
        """Replaces the content of the file by these entries, and syncs it. Raises OSError; the file is then
        unchanged (or, if only the folder could not be synced, as `replace_file` says)."""
        header = Header(self._kind, self._new_id(), is_incomplete)
        records = (record_bytes(header.id, key, value) for key, value in entries if value)
        size = replace_file(self.path, _in_chunks([header.to_bytes()], records), self._disk)
        with suppress(OSError):
            self.close()
        self.header, self.size, self._is_suspect, self._rescued = header, size, False, None
        self._replace_at = 2 * size + self._slack_bytes
        self._file = self._disk.open(self.path)

    def compact(self) -> None:
        """Replaces the file by its live records, if it has grown enough (`SLACK_BYTES`). Raises OSError."""
        if self.size > self._replace_at:
            # If this fails, the next try waits until the file has grown.
            self._replace_at = self.size + self._slack_bytes
            self._copy(self.header.is_incomplete)

    def complete(self) -> None:
        """Removes the mark that the file is incomplete: the lost records matter no longer. Raises OSError."""
        if self.header.is_incomplete:
            self._make_sound()
            self._copy(False)

    def close(self) -> None:
        """Closes the descriptor. Idempotent."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    # Mending

    def _missing(self, at_least: Callable[[int], int]) -> FileContent:
        self.header, self.size = Header(self._kind, 0), 0
        if not at_least(0):
            return FileContent()
        damage = Damage(self.path, 0, 0, "the file is missing", None)
        self._set_aside({})
        return FileContent({}, True, (damage,))

    def _repair(
        self, damaged: list[tuple[int, int]], entries: Mapping[bytes, bytes], problem: str
    ) -> FileContent:
        kept = self._keep_copy()
        damage = tuple(Damage(self.path, start, end - start, problem, kept) for start, end in damaged)
        self._set_aside(entries)
        return FileContent(dict(entries), True, damage)

    def _set_aside(self, entries: Mapping[bytes, bytes]) -> None:
        """Replaces the damaged file by its whole records. If that is not possible now, the damaged file
        stays, and it is replaced before anything else is written."""
        self._rescued = None
        try:
            self.replace(entries.items(), is_incomplete=True)
        except OSError:
            self._rescued = dict(entries)
            self.header = Header(self._kind, 0, True)

    def _keep_copy(self) -> Path | None:
        """Gives the file a second name, under which it stays when it is replaced. If the file system has no
        hard links, copies it. Returns the path; None: neither was possible."""
        names = [self.path.with_name(f"{self.path.name}.damaged-{n}") for n in range(1, MOST_KEPT + 1)]
        try:
            kept = next((name for name in names if not self._exists(name)), names[-1])
            try:
                self._disk.link(self.path, kept)
            except OSError:
                replace_file(kept, [self._disk.read(self.path)], self._disk)
        except OSError:
            return None
        return kept

    def _exists(self, path: Path) -> bool:
        try:
            self._disk.size(path)
        except FileNotFoundError:
            return False
        return True

    def _cut_off(self) -> None:
        """After a failed write: truncates the file to its last whole record."""
        assert self._file is not None
        try:
            self._file.truncate(self.size)
        except OSError:
            self._is_suspect = True

    def _make_sound(self) -> None:
        if self._rescued is not None:
            self.replace(self._rescued.items(), is_incomplete=True)
        elif self._is_suspect:
            self._copy(self.header.is_incomplete)

    def _reopen(self) -> None:
        if self.header.id:
            self._file = self._disk.open(self.path)
        else:
            self.replace([], is_incomplete=self.header.is_incomplete)

    def _copy(self, is_incomplete: bool) -> None:
        """Replaces the file by its live records. Raises OSError; EIO if the file does not read as it was
        written."""
        data = self._disk.read(self.path)[: self.size]
        found = read_records(data, self.header.id)
        if len(data) < self.size or found.damage or found.torn:
            self._replace_at = 2 * self.size + self._slack_bytes
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        self.replace(found.entries.items(), is_incomplete=is_incomplete)


_CHUNK_BYTES: Final = 1 << 20


def _in_chunks(*parts: Iterable[bytes]) -> Iterable[bytes]:
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        for piece in part:
            waiting.append(piece)
            size += len(piece)
            if size >= _CHUNK_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
    yield b"".join(waiting)


def _length(entries: Mapping[bytes, bytes]) -> int:
    return HEADER_BYTES + sum(16 + len(key) + len(value) for key, value in entries.items())
