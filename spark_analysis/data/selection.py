"""Which files of a directory are read: those of the wanted runs and the wanted time.

To find the runs takes the names of all files, and one footer for each process: that of its last file, which
has the begin of its last interval. Only the files of the chosen runs are examined further. If only a part of
the time is wanted, the footers have the begin and end of each file. Files across a bound are read once more
than others, to count their rows within the bounds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import SparkSession

from . import reading
from .reading import DAMAGED, Found, Usable
from .runs import Choice, Process, RunSelection, choose, runs_of
from .schema import FILE_NAME, SCHEMAS
from .storage import Storage

_AT: Final = "at"
_THREADS: Final = 8
_INTERVAL_US: Final = 1_000_000
_FILE_US: Final = 10_000_000
"""The approximate length of one file, if its footer does not have it."""


@dataclass(frozen=True)
class Selected:
    """The files to analyse, and their runs."""

    found: Found
    choice: Choice


def select(spark: SparkSession, directory: str, wanted: RunSelection) -> Selected:
    """Examines the wanted files below a directory.

    Raises AnalysisError if there is no such directory, or none of the wanted telemetry.
    """
    storage = Storage(spark)
    foreign: list[str] = []
    of_processes: dict[tuple[str, int], list[str]] = defaultdict(list)
    for path in storage.files(directory):
        place, _, file = path.rpartition("/")
        name = FILE_NAME.fullmatch(file)
        if name is None:
            foreign.append(path)
        else:
            of_processes[place.rpartition("/")[2], int(name["started_at"])].append(path)
    with ThreadPoolExecutor(_THREADS) as pool:
        processes = pool.map(
            lambda item: _process(storage, item[0][1], item[1]), sorted(of_processes.items())
        )
        choice = choose(runs_of(processes), wanted)
    files = [path for run in choice.taken for process in run.processes for path in process.files]
    if not wanted.is_bounded:
        return Selected(reading.look_at(spark, directory, [*foreign, *files]), choice)
    return Selected(_within(spark, directory, foreign, files, wanted.bounds), choice)


def _process(storage: Storage, began: int, files: Sequence[str]) -> Process:
    """A process, whose end is in its last readable file."""
    ordered = sorted(files, key=_sequence, reverse=True)
    ended = None
    for path in ordered:
        span = storage.span(path, _AT)
        if span is not None:
            ended = span[1] + _INTERVAL_US
            break
    if ended is None:
        ended = began + (_sequence(ordered[0]) + 1) * _FILE_US
    return Process(began, max(began, ended), tuple(files))


def _within(
    spark: SparkSession,
    directory: str,
    foreign: Sequence[str],
    files: Sequence[str],
    bounds: tuple[int | None, int | None],
) -> Found:
    """The files with rows within the bounds, and the number of these rows."""
    storage = Storage(spark)
    since, until = bounds
    low, high = since or 0, until or 1 << 63
    with ThreadPoolExecutor(_THREADS) as pool:
        spans = dict(zip(files, pool.map(lambda path: storage.span(path, _AT), files), strict=True))
    apart = {path for path, span in spans.items() if span and (span[1] < low or span[0] >= high)}
    whole = {path for path, span in spans.items() if span and low <= span[0] and span[1] < high}
    kept = [path for path in files if path not in apart]
    found = replace(reading.look_at(spark, directory, [*foreign, *kept]), since=since, until=until)
    across = [file for file in found.usable if file.path not in whole]
    return _counted(spark, found, across)


def _counted(spark: SparkSession, found: Found, across: Iterable[Usable]) -> Found:
    """Examines files across a bound: they are damaged, or their rows within the bounds are counted."""
    counted: dict[str, Usable] = {}
    damaged: list[str] = []
    for kind in SCHEMAS:
        files = tuple(file for file in across if file.kind == kind)
        inside = reading.look_through(spark, replace(found, usable=files), kind)
        for file in files:
            content = inside.get(file.path)
            if content is None or content.rows != file.rows:
                damaged.append(file.path)
            else:
                counted[file.path] = replace(file, within=content.within)
    usable = (counted.get(file.path, file) for file in found.usable)
    kept = tuple(file for file in usable if file.within != 0)
    return replace(found, usable=kept).without(damaged, DAMAGED)


def _sequence(path: str) -> int:
    name = FILE_NAME.fullmatch(path.rpartition("/")[2])
    return -1 if name is None else int(name["sequence"])
