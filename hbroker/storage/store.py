"""The record files of one process. Everything that was put is written and synced together (§5.10).

`put` makes no system call, so it never blocks. `flush` writes everything that was put since the last flush,
with one sync for each file that changed. `put`, `flush` and `save_checkpoint` may be called from three
threads. A `flush` that hangs blocks neither of the other two.

`put` returns a mark, which counts the calls of `put`. A promise that relies on a value may be given once
`durable` has reached the value's mark. While the disk fails, the latest value of each key waits in memory,
and each `flush` tries again.
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
from hbroker.storage.record_file import FileContent, RecordFile

__all__ = ["OVERDUE_S", "Fault", "Store"]

OVERDUE_S: Final = 2.0
"""Seconds. A `flush` or `save_checkpoint` that takes longer counts as failed until it returns."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why nothing can be written now."""

    path: Path
    error: OSError

    def __str__(self) -> str:
        return f"{self.path}: {self.error.strerror or self.error}"


class Store:
    """`files`: the record files by their kinds. `checkpoint_path`: of the checkpoint. `instant`: returns the
    time of a clock that is never set."""

    def __init__(
        self,
        files: Mapping[int, RecordFile],
        checkpoint_path: Path,
        disk: Disk,
        instant: Callable[[], Instant],
    ) -> None:
        self._files: Final = dict(files)
        self._checkpoint_path = checkpoint_path
        self._disk = disk
        self._instant = instant
        self._lock = Lock()
        self._pending: dict[tuple[int, bytes], bytes] = {}
        self._incomplete: set[int] = set()
        """The kinds of the files whose mark as incomplete is to be removed."""
        self.written = 0
        """The mark of the last `put`."""
        self.durable = 0
        """The mark up to which everything is on the disk."""
        self._synced: dict[int, tuple[int, int]] = {}
        self._saving_checkpoint = Lock()
        self._checkpoint_fault: Fault | None = None
        """Why the last `save_checkpoint` failed."""
        self._uncompacted: Fault | None = None
        """Why a file could not be compacted after the last `flush`."""
        self.fault: Fault | None = None
        """Why the last `flush` failed. Until one succeeds, nothing new can be promised."""

    # Change

    def open(self) -> tuple[dict[int, FileContent], int | None]:
        """Reads and repairs all files. Returns their contents by kind, and how many microseconds ago the last
        run was alive (None: unknown). Raises OSError."""
        last = checkpoint.load(self._disk, self._checkpoint_path)
        opened = {kind: file.open(_demand(last, kind)) for kind, file in self._files.items()}
        self._synced = {
            kind: (file.header.id, file.size) for kind, file in self._files.items() if file.header.id
        }
        return opened, None if last is None else self._instant().since(last.alive)

    def put(self, kind: int, key: bytes, value: bytes) -> int:
        """Notes a value in memory; an empty value ends the key. Returns the mark of this call."""
        with self._lock:
            self._pending.pop((kind, key), None)
            self._pending[kind, key] = value
            self.written += 1
            return self.written

    def complete(self, kind: int) -> None:
        """Removes, with the next `flush`, the mark that this file is incomplete."""
        with self._lock:
            self._incomplete.add(kind)

    def flush(self) -> bool:
        """Writes and syncs everything that was put. False: the disk failed, and everything waits for the next
        flush."""
        with self._lock:
            batch, self._pending = self._pending, {}
            completed, self._incomplete = self._incomplete, set()
            mark = self.written
        try:
            self._write(batch, completed)
        except _WriteError as failed:
            with self._lock:
                self._pending = {**batch, **self._pending}
                self._incomplete |= completed
            self.fault = failed.fault
            return False
        self.durable, self.fault, self._uncompacted = mark, None, None
        if batch or completed:
            self.save_checkpoint()
            self._compact()
        return True

    def save_checkpoint(self) -> None:
        """Writes the checkpoint: this run is alive, and these bytes are synced. The caller calls it about
        every second, also while a `flush` is under way or fails."""
        if not self._saving_checkpoint.acquire(blocking=False):
            return  # Another thread is writing the same checkpoint.
        try:
            checkpoint.save(self._disk, self._checkpoint_path, Checkpoint(self._instant(), self._synced))
            self._checkpoint_fault = None
        except OSError as error:
            self._checkpoint_fault = Fault(self._checkpoint_path, error)
        finally:
            self._saving_checkpoint.release()

    def close(self) -> None:
        """Closes the descriptors. Values that were not flushed are lost."""
        for file in self._files.values():
            file.close()

    # Read

    @property
    def minor_fault(self) -> Fault | None:
        """Why a file could not be compacted, or the checkpoint not written. Nothing that was flushed is
        lost."""
        return self._checkpoint_fault or self._uncompacted

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
        """Compacts each file that has grown enough. A file that cannot be compacted now stays as long as it
        is."""
        for kind, file in self._files.items():
            try:
                file.compact()
            except OSError as error:
                self._uncompacted = Fault(file.path, error)
            self._note_synced(kind, file)

    def _note_synced(self, kind: int, file: RecordFile) -> None:
        if file.header.id:
            # A new dictionary, because another thread may be reading the old one in `save_checkpoint`.
            self._synced = {**self._synced, kind: (file.header.id, file.size)}


class _WriteError(Exception):
    def __init__(self, fault: Fault) -> None:
        self.fault = fault


def _demand(last: Checkpoint | None, kind: int) -> Callable[[int], int]:
    """Returns, for a file's id, how many bytes the file must have: those that the checkpoint counted as
    synced, for the same file or a missing one (id 0); else 0."""
    file_id, size = (0, 0) if last is None else last.synced.get(kind, (0, 0))
    return lambda found: size if found in (file_id, 0) else 0
