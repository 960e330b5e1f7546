"""The telemetry files of one process. Each appears whole, and old files are deleted.

    DIR/date=YYYY-MM-DD/node=NAME/KIND-STARTED-NUMBER.parquet

A file is written under a name that begins with a dot, which readers ignore, and then renamed. Files that
another run of this process left under such names are deleted.

The files are bounded in bytes and in age. To enforce the bounds costs little, however many files there are:
the archive keeps the sum of the bytes of each day, and lists the files of the oldest day only.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["FileArchive"]

_SUFFIX: Final = ".parquet"
_HOUR: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class _ArchivedFile:
    """A file of the archive. `written`: seconds since the Unix epoch, by the file system."""

    path: Path
    size: int
    written: float


class FileArchive:
    """The telemetry files of the process called `node`. `keep_bytes`, `keep_hours`: the bounds. `clock`:
    returns seconds since the Unix epoch.

    The constructor reads the directory, writes nothing, and raises no OSError.
    """

    def __init__(
        self,
        directory: Path,
        node: str,
        *,
        keep_bytes: int,
        keep_hours: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._node = node
        self._keep_bytes = keep_bytes
        self._keep_s = keep_hours * _HOUR
        self._clock = clock
        self._days = {day: sum(kept.size for kept in self._files(day)) for day in sorted(self._known_days())}
        self._oldest: tuple[str, deque[_ArchivedFile]] | None = None

    # Change

    def put(self, kind: str, day: str, run: int, number: int, write: Callable[[Path], None]) -> None:
        """Adds a file. `write` writes its content to the path that it is given.

        Raises OSError, and whatever `write` raises; the file is then removed.
        """
        place = self._place(day)
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{kind}-{run}-{number}{_SUFFIX}"
        fresh = place / f".{path.name}"
        try:
            write(fresh)
            size = fresh.stat().st_size
            fresh.replace(path)
        except BaseException:
            with suppress(OSError):
                fresh.unlink()
            raise
        self._days[day] = self._days.get(day, 0) + size
        if self._oldest is not None and day < self._oldest[0]:
            self._oldest = None  # The clock was set back.
        elif self._oldest is not None and day == self._oldest[0]:
            self._oldest[1].append(_ArchivedFile(path, size, self._clock()))

    def enforce_bounds(self) -> None:
        """Deletes the oldest files until the bounds hold. Raises OSError."""
        while (oldest := self._first()) is not None:
            day, files = oldest
            is_too_old = files[0].written < self._clock() - self._keep_s
            if not is_too_old and sum(self._days.values()) <= self._keep_bytes:
                return
            kept = files.popleft()
            self._days[day] -= kept.size
            with suppress(FileNotFoundError):
                kept.path.unlink()

    def remove_unfinished(self, run: int) -> int:
        """Deletes unfinished files of other runs. Returns a number for this run that no file has: `run`, or
        the next free one. Raises OSError."""
        taken = set()
        for day in self._known_days():
            for entry in os.scandir(self._place(day)):
                if entry.name.startswith("."):
                    os.unlink(entry.path)
                elif (order := _order(entry.name)) is not None:
                    taken.add(order[0])
        while run in taken:
            run += 1
        return run

    # Within this module

    def _first(self) -> tuple[str, deque[_ArchivedFile]] | None:
        """The oldest day with files, and its files; None: there are none."""
        while self._oldest is None or not self._oldest[1]:
            if self._oldest is not None:
                self._drop_day(self._oldest[0])
                self._oldest = None
            if not self._days:
                return None
            day = min(self._days)
            self._oldest = day, deque(self._files(day))
        return self._oldest

    def _drop_day(self, day: str) -> None:
        self._days.pop(day, None)
        place = self._place(day)
        with suppress(OSError):  # Another process may have files of that day.
            place.rmdir()
            place.parent.rmdir()

    def _place(self, day: str) -> Path:
        return self._directory / f"date={day}" / f"node={self._node}"

    def _known_days(self) -> list[str]:
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        days = [name.removeprefix("date=") for name in names if name.startswith("date=")]
        return [day for day in days if self._place(day).is_dir()]

    def _files(self, day: str) -> Iterator[_ArchivedFile]:
        """The files of one day, the oldest first."""
        found = []
        with suppress(OSError), os.scandir(self._place(day)) as entries:
            for entry in entries:
                order = _order(entry.name)
                if order is not None:
                    status = entry.stat()
                    found.append((order, _ArchivedFile(Path(entry.path), status.st_size, status.st_mtime)))
        return (kept for _, kept in sorted(found, key=lambda item: item[0]))


def _order(name: str) -> tuple[int, int, str] | None:
    """The (run, number, kind) of a file's name; None: it is no telemetry file."""
    parts = name.removesuffix(_SUFFIX).split("-")
    if name.startswith(".") or not name.endswith(_SUFFIX) or len(parts) != 3:
        return None
    kind, run, number = parts
    return (int(run), int(number), kind) if run.isdecimal() and number.isdecimal() else None
