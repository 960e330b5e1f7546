"""Collects intervals, and writes them to files: when there are enough of them, and at the end of each day
(UTC).

If a file cannot be written, the log has the error once, and its intervals count as lost. The next interval
that can be written reports their number in `drops`, under `telemetry`. A failing disk has no other effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from hbroker._native import Load
from hbroker.config import TelemetrySettings
from hbroker.runtime.logs import EventLog
from hbroker.runtime.telemetry.file_archive import FileArchive
from hbroker.runtime.telemetry.interval import Facts, IntervalClock, Sample
from hbroker.runtime.telemetry.rows import Identity, Interval, node_table, topic_table

__all__ = ["Journal"]

_NAMES: Final = ["node", "role", "topic", "address", "parent"]
"""Columns that Parquet encodes with a dictionary, because their values repeat."""


class Journal:
    """The telemetry of one process. It raises no OSError."""

    def __init__(
        self, settings: TelemetrySettings, name: str, role: str, watch: IntervalClock, log: EventLog
    ) -> None:
        self._settings = settings
        self._watch = watch
        self._log = log
        self._archive = FileArchive(
            Path(settings.directory),
            name,
            keep_bytes=settings.keep_bytes,
            keep_hours=settings.keep_hours,
        )
        self._logged_failures: set[tuple[str, int | None]] = set()
        self._counted: Mapping[str, int] = {}
        self._intervals: list[Interval] = []
        self._number = 0
        self._lost = 0
        self._identity = Identity(name, role, self._free_run())

    def add_interval(self, facts: Facts, load: Load) -> Sample:
        """Ends an interval, with these facts and counts, and returns it. Writes a file if it is time."""
        sample = self._watch.sample()
        if self._intervals and _day(sample.at) != _day(self._intervals[0].sample.at):
            self._write()
        before, self._counted = self._counted, load.counters
        counted = {name: value - before.get(name, 0) for name, value in load.counters.items()}
        self._intervals.append(Interval(sample, facts, load, counted, self._lost))
        self._lost = 0
        if sum(interval.sample.seconds for interval in self._intervals) >= self._settings.file - _SLACK_S:
            self._write()
        return sample

    def close(self) -> None:
        """Writes the intervals that are left."""
        if self._intervals:
            self._write()

    def _free_run(self) -> int:
        try:
            return self._archive.remove_unfinished(self._watch.began)
        except OSError as error:
            self._log_once("telemetry_not_removed", error)
            return self._watch.began

    def _write(self) -> None:
        intervals, self._intervals = self._intervals, []
        try:
            self._put(intervals)
        except OSError as error:
            self._lost += len(intervals) + sum(interval.lost for interval in intervals)
            self._log_once("telemetry_not_written", error)
        self._number += 1
        try:
            self._archive.enforce_bounds()
        except OSError as error:
            self._log_once("telemetry_not_removed", error)

    def _put(self, intervals: list[Interval]) -> None:
        for kind, table in (
            ("topics", topic_table(self._identity, intervals)),
            ("nodes", node_table(self._identity, intervals)),
        ):
            if table.num_rows:
                day = _day(intervals[0].sample.at)
                self._archive.put(kind, day, self._identity.run, self._number, partial(_write_table, table))

    def _log_once(self, event: str, error: OSError) -> None:
        """Logs each kind of failure once."""
        if (event, error.errno) not in self._logged_failures:
            self._logged_failures.add((event, error.errno))
            self._log.error(event, error=str(error))


_SLACK_S: Final = 0.05
"""Seconds by which the intervals of a file may fall short of its length, because no interval is exact."""


def _write_table(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, compression="zstd", use_dictionary=_NAMES)


def _day(at: int) -> str:
    return datetime.fromtimestamp(at // 1_000_000, UTC).date().isoformat()
