"""The record files of one process: what is noted together is written and synced together.

`put` costs no system call: it may be called where nothing must block. `flush` writes all that was put since
the last time, with one sync for each file that changed, however much that is. `put`, `flush` and `touch` may
be called from three threads: a `flush` that hangs holds up neither of the others.

A mark counts what was put. What a promise rests on is on the disk once `durable` has reached the mark that
`put` returned. Where a disk fails, everything waits in memory, the latest value of each key alone, and
`flush` tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from hbroker.storage import checkpoint
from hbroker.storage.checkpoint import Checkpoint, Instant
from hbroker.storage.disk import Disk
from hbroker.storage.record_file import Opened, RecordFile

__all__ = ["OVERDUE_S", "Fault", "Store"]

OVERDUE_S: Final = 2.0
"""A `flush` or `touch` that takes longer counts as one that failed, until it returns."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why nothing can be written now."""

    path: Path
    error: OSError

    def __str__(self) -> str:
        return f"{self.path}: {self.error.strerror or self.error}"


class Store:
    """`files` by their kinds. `instant`: what time it is, by a clock that is never set."""

    def __init__(
        self, files: Mapping[int, RecordFile], mark: Path, disk: Disk, instant: Callable[[], Instant]
    ) -> None:
        self._files: Final = dict(files)
        self._mark = mark
        self._disk = disk
        self._instant = instant
        self._lock = Lock()
        self._pending: dict[tuple[int, bytes], bytes] = {}
        self._incomplete: set[int] = set()
        """Files that are to be marked as complete."""
        self._written = self._durable = 0
        self._synced: dict[int, tuple[int, int]] = {}
        self._touching = Lock()
        self._untouched: Fault | None = None
        """Why the last `touch` failed."""
        self._uncompacted: Fault | None = None
        """Why a file could not be made shorter after the last `flush`."""
        self.fault: Fault | None = None
        """Why the last `flush` failed: nothing new can be promised."""

    # Change

    def open(self) -> tuple[dict[int, Opened], int | None]:
        """Reads and mends all files; what is in them, by kind, and how long ago the last run was alive, in
        microseconds (None: nobody can tell). Raises OSError."""
        last = checkpoint.load(self._disk, self._mark)
        opened = {kind: file.open(_demand(last, kind)) for kind, file in self._files.items()}
        self._synced = {kind: (file.id, file.size) for kind, file in self._files.items() if file.id}
        return opened, None if last is None else self._instant().since(last.alive)

    def put(self, kind: int, key: bytes, value: bytes) -> int:
        """Notes a value, an empty one if the key has ended. Returns its mark."""
        with self._lock:
            self._pending.pop((kind, key), None)
            self._pending[kind, key] = value
            self._written += 1
            return self._written

    def complete(self, kind: int) -> None:
        """What was lost of a file matters no longer."""
        with self._lock:
            self._incomplete.add(kind)

    def flush(self) -> bool:
        """Writes what was put. False: it could not be written, and waits for the next time."""
        with self._lock:
            batch, self._pending = self._pending, {}
            completed, self._incomplete = self._incomplete, set()
            mark = self._written
        try:
            self._write(batch, completed)
        except _WriteError as failed:
            with self._lock:
                self._pending = {**batch, **self._pending}
                self._incomplete |= completed
            self.fault = failed.fault
            return False
        self._durable, self.fault, self._uncompacted = mark, None, None
        if batch or completed:
            self.touch()
            self._compact()
        return True

    def touch(self) -> None:
        """This run is alive, and this much is on the disk. To be called every second or so, also while a
        `flush` is under way or fails."""
        if not self._touching.acquire(blocking=False):
            return  # Another call says the same.
        try:
            checkpoint.save(self._disk, self._mark, Checkpoint(self._instant(), self._synced))
            self._untouched = None
        except OSError as error:
            self._untouched = Fault(self._mark, error)
        finally:
            self._touching.release()

    def close(self) -> None:
        """Gives the descriptors back. What was not flushed is lost."""
        for file in self._files.values():
            file.close()

    # Read

    @property
    def written(self) -> int:
        """The mark of what was put last."""
        return self._written

    @property
    def durable(self) -> int:
        """The mark up to which everything is on the disk."""
        return self._durable

    @property
    def hindrance(self) -> Fault | None:
        """Why a file cannot be made shorter, or the time not noted; nothing else is wrong."""
        return self._untouched or self._uncompacted

    # Writing

    def _write(self, batch: Mapping[tuple[int, bytes], bytes], completed: set[int]) -> None:
        for kind, file in self._files.items():
            entries = [(key, value) for (of, key), value in batch.items() if of == kind]
            try:
                if kind in completed:
                    file.complete()
                if entries:
                    file.append(entries)
                    file.sync()
            except OSError as error:
                raise _WriteError(Fault(file.path, error)) from error
            self._note_synced(kind, file)

    def _compact(self) -> None:
        """What cannot be made shorter now is as long as it is."""
        for kind, file in self._files.items():
            try:
                file.compact()
            except OSError as error:
                self._uncompacted = Fault(file.path, error)
            self._note_synced(kind, file)

    def _note_synced(self, kind: int, file: RecordFile) -> None:
        if file.id:
            # Another dictionary: `touch` may be reading this one.
            self._synced = {**self._synced, kind: (file.id, file.size)}


class _WriteError(Exception):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault


def _demand(last: Checkpoint | None, kind: int) -> Callable[[int], int]:
    """How many bytes a file must have: of the same file as many as were synced; of no file (id 0) any."""
    file_id, size = (0, 0) if last is None else last.synced.get(kind, (0, 0))
    return lambda found: size if found in (file_id, 0) else 0
