"""Files as they appear: each is taken once, whatever happens, and only if it is telemetry.

Spark's own source of files does two things that would be wrong here. It passes over what it cannot read
without a word, or reads a part of it, where the batch analysis leaves out the whole file and names it. And it
keeps the name of every file that there ever was. So this looks at what is new as the batch does (`reading`),
and hands the rows of what is good on to the stream, as one file for each round: `intake/N.parquet`.

A round is *decided*, then *done*. Its decision, `files/N.json`, names the files that are taken and those that
are skipped; it is there whole or not at all. Whoever is killed after that finds the last decision when it
starts again, and carries it out: `intake/N.parquet` is made from the same files, and has the same name, so
the stream, which takes each name once, has no row twice.

Every hundredth decision also names all earlier files that are still there, and takes the place of the
decisions before it. So what is remembered is bounded by what lies in the directory, which its writers bound.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from . import reading
from .errors import AnalysisError
from .reading import DAMAGED, Found, Skipped, Usable
from .schema import FILE_NAME
from .storage import Storage, below

KIND: Final = "nodes"
"""Rows of topics go into no table of windows: their files are passed over."""

MOST_FILES: Final = 10_000
"""In a round. The next takes the rest."""

AHEAD_S: Final = 300
"""Intervals that begin later than this after their file was written are a clock's that is wrong. One such
file would carry the watermark away, and everything after it would be late."""

_AHEAD: Final = f"its intervals begin more than {AHEAD_S} s after it was written: a clock is wrong"
_ROUNDS_KEPT: Final = 100
_FILE_US: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Taken:
    """What a round found."""

    files: int
    rows: int
    skipped: tuple[Skipped, ...]


class Intake:
    """The files of a directory. `place`: where decisions and rows go."""

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
        """Takes what is new; None: nothing is.

        Raises AnalysisError where the directory is gone.
        """
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
        """Less what cannot be read to its end, or lies ahead of its own time."""
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
        """Writes the rows of a round, unless they are there."""
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
    """About when it begins: its run's begin, and ten seconds for each file of the run before it."""
    name = FILE_NAME.fullmatch(path.rpartition("/")[2])
    return (0 if name is None else int(name["started_at"]) + int(name["sequence"]) * _FILE_US, path)
