"""Takes telemetry files as they appear: each exactly once, and only valid ones.

Spark's own file source does two things that would be wrong here. It skips unreadable files, or reads a part
of them, without a report; the batch analysis leaves out the whole file and names it. And it remembers every
file name for ever. So this module examines new files as the batch analysis does (`reading`), and gives the
rows of valid ones to the stream, as one file for each round: `intake/N.parquet`.

A round is first *decided*, then *done*. Its decision, `files/N.json`, names the files that are taken and
those that are skipped; it is written atomically. After a crash the next run finds the last decision and
executes it: it writes `intake/N.parquet` from the same files under the same name. The stream takes each name
once, so no row is doubled.

Every hundredth decision also names all earlier files that still exist, and replaces the decisions before it.
So the state is bounded by the directory's size, which its writers bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from ..errors import AnalysisError
from . import reading
from .reading import DAMAGED, Found, Skipped, Usable
from .schema import FILE_NAME
from .storage import Storage, below

KIND: Final = "nodes"
"""Rows of topics are in no table of windows, so their files are ignored."""

MOST_FILES: Final = 10_000
"""Files in a round. Further ones are taken in the next."""

AHEAD_S: Final = 300
"""If a file's interval begins more than this number of seconds after the file was written, its writer's clock
is wrong. Such a file would advance the watermark, and all later rows would be late."""

_AHEAD: Final = f"its intervals begin more than {AHEAD_S} s after it was written: a clock is wrong"
_ROUNDS_KEPT: Final = 100
_FILE_US: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of a round."""

    files: int
    rows: int
    skipped: tuple[Skipped, ...]


class Intake:
    """The files of a directory. `place`: the directory of decisions and rows."""

    def __init__(self, spark: SparkSession, directory: str, place: str) -> None:
        self._spark = spark
        self._storage = Storage(spark)
        self._directory = directory
        self._ledger = below(place, "files")
        self.rows = below(place, "intake")
        self._storage.make_directory(self._ledger)
        self._storage.make_directory(self.rows)
        self._known: set[str] = set()
        self._rounds = sorted(int(name.removesuffix(".json")) for name in self._storage.names(self._ledger))
        for number in self._rounds:
            decision = json.loads(self._storage.read(self._decision(number)))
            self._known.update(decision["before"], decision["taken"], decision["skipped"])
            if number == self._rounds[-1]:
                self._do(number, decision["taken"])

    def take(self) -> Taken | None:
        """Takes the new files; None: there are none. Raises AnalysisError if the directory does not exist."""
        there = self._storage.files(self._directory)
        new = sorted((path for path in there if self._is_new(path)), key=_in_order)[:MOST_FILES]
        if not new:
            return None
        found = self._judged(reading.look_at(self._spark, self._directory, new))
        number = self._rounds[-1] + 1 if self._rounds else 0
        taken = [file.path for file in found.usable]
        self._decide(number, taken, [file.path for file in found.skipped], there)
        self._do(number, taken)
        return Taken(len(taken), found.rows(KIND), found.skipped)

    def _is_new(self, path: str) -> bool:
        name = FILE_NAME.fullmatch(path.rpartition("/")[2])
        return path not in self._known and (name is None or name["kind"] == KIND)

    def _judged(self, found: Found) -> Found:
        """Removes files that cannot be read to their end, and those with a wrong clock."""
        inside = reading.look_through(self._spark, found, KIND)
        damaged: list[str] = []
        ahead: list[str] = []
        for file in found.usable:
            content = inside.get(file.path)
            if content is None or content.rows != file.rows:
                damaged.append(file.path)
            elif content.last > content.written + AHEAD_S * 1_000_000:
                ahead.append(file.path)
        return found.without(damaged, DAMAGED).without(ahead, _AHEAD)

    def _decide(self, number: int, taken: list[str], skipped: list[str], there: Iterable[str]) -> None:
        is_whole = number % _ROUNDS_KEPT == _ROUNDS_KEPT - 1
        before = sorted(self._known.intersection(there)) if is_whole else []
        decision = {"taken": taken, "skipped": skipped, "before": before}
        self._storage.write_whole(self._decision(number), json.dumps(decision))
        if is_whole:
            self._known = set(before)
            for earlier in self._rounds:
                self._storage.remove(self._decision(earlier))
            self._rounds.clear()
        self._known.update(taken, skipped)
        self._rounds.append(number)

    def _do(self, number: int, taken: Sequence[str]) -> None:
        """Writes the rows of a round, unless they exist."""
        target = below(self.rows, f"{number}.parquet")
        if not taken or self._storage.exists(target):
            return
        hidden = below(self.rows, f".{number}")
        files = tuple(Usable(path, KIND, 0, "") for path in taken)
        rows = reading.read(self._spark, Found(self._directory, files, ()), KIND)
        rows.coalesce(1).write.mode("overwrite").parquet(hidden)
        for path in self._storage.files(hidden):
            if not self._storage.move(path, target):
                raise AnalysisError(f"{target} could not be written")
        self._storage.remove(hidden)

    def _decision(self, number: int) -> str:
        return below(self._ledger, f"{number}.json")


def _in_order(path: str) -> tuple[int, str]:
    """About when a file begins: its process's start, and ten seconds for each earlier file of that
    process."""
    name = FILE_NAME.fullmatch(path.rpartition("/")[2])
    return (0 if name is None else int(name["started_at"]) + int(name["sequence"]) * _FILE_US, path)
