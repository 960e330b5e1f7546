"""The same analysis over files as they appear, with Structured Streaming.

The rows come from `intake`. The stream collects the intervals of each node in each window until the watermark
(the latest interval less the allowed lateness) has passed the window's end. Then the window is complete and
leaves the state, all its nodes in one micro-batch. Its rows go through the functions of the batch analysis
(`loads`, `losses`, `latency`). Later rows of that window are late: they are counted and dropped.

The output is exactly-once. The checkpoint records the rows of a micro-batch before it runs, so a repetition
after a crash has the same rows. It overwrites `NAME.parquet/batch=N` of an earlier attempt. The alerts after
micro-batch N follow from those after the one before, and from its windows. They are written as
`alerts/N.json` before they are published, and are the same if they are published again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from .data.intake import Intake, Taken
from .data.schema import NODES
from .data.storage import FOLLOWED, Storage, below
from .errors import AnalysisError
from .measures import alerts, latency, loads, losses
from .measures.alerts import Alert, Rules, Watches
from .measures.loads import WINDOW
from .tables import Rows, Tables, collected

WRITTEN: Final = ("node_load", "drops", "histograms", "imbalance_over_time", "latency_over_time")

_NODE: Final = ("role", "node")
_SETTINGS: Final = "settings.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings. `window_s` and `late_s` are part of the state: an output directory keeps its first
    values."""

    window_s: int = 10
    late_s: int = 30
    """The allowed lateness in seconds: how much later than the latest interval one may arrive and still
    count."""
    every_s: float = 10.0
    """Seconds between two listings of the directory."""
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class Closed:
    """Windows that were completed together."""

    begin: datetime
    end: datetime
    """The begin of the last window."""
    nodes: int
    spread: Rows
    """Rows of `loads.imbalance` by role and window."""
    changed: tuple[Alert, ...]


class Reporter(Protocol):
    """Receives the events of a follower. It is called from several threads."""

    def took(self, taken: Taken) -> None:
        """Files were taken or skipped."""
        ...

    def closed(self, closed: Closed) -> None:
        """Windows are complete and in the tables."""
        ...

    def restored(self, told: Sequence[Alert]) -> None:
        """The last state of each alert, as earlier runs recorded it. It may not have been published."""
        ...

    def late(self, count: int) -> None:
        """Intervals arrived after their window was closed: in `count` windows of a node."""
        ...


def whole_windows(rows: DataFrame, window_s: int, late_s: int) -> DataFrame:
    """The interval rows of a stream, when their window is complete: those of a node and window together, and
    all of a window in one micro-batch."""
    others = [name for name in rows.columns if name not in _NODE]
    gathered = (
        rows.withWatermark("at", f"{late_s} seconds")
        .groupBy(*_NODE, F.window("at", f"{window_s} seconds"))
        .agg(F.collect_list(F.struct(*others)).alias("intervals"))
    )
    each = gathered.select(*_NODE, F.explode("intervals").alias("interval"))
    return each.select(*_NODE, "interval.*").select(*rows.columns)


class Follower:
    """Follows a directory. It continues the work of an earlier run in `out`.

    Raises AnalysisError if `out` has other tables or other settings.
    """

    def __init__(
        self, spark: SparkSession, directory: str, out: str, settings: Settings, reporter: Reporter
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._reporter = reporter
        self._storage = Storage(spark)
        self._place = below(out, FOLLOWED)
        self._tables = Tables(spark, out)
        self._scratch = Tables(spark, self._place)
        self._claim(directory, out)
        self._intake = Intake(spark, directory, self._place)
        self._late_up_to = -1
        reporter.restored(self._watches(None).told())

    def run(self, over: threading.Event) -> None:
        """Runs until `over` is set, or something fails. Raises AnalysisError, and Spark's exceptions."""
        query = self._start(processingTime="1 second")
        try:
            while not over.is_set():
                while not over.is_set() and (taken := self._intake.take()) is not None:
                    self._reporter.took(taken)
                self._tell_late(query)
                over.wait(self._settings.every_s)
                if not query.isActive:
                    query.awaitTermination()
                    raise AnalysisError("the stream has ended")
        finally:
            self._tell_late(query)
            query.stop()

    def run_once(self) -> None:
        """Takes the files that are there, and closes the complete windows. Raises as `run`."""
        while (taken := self._intake.take()) is not None:
            self._reporter.took(taken)
        query = self._start(availableNow=True)
        query.awaitTermination()
        self._tell_late(query)

    def _start(self, **trigger: Any) -> StreamingQuery:
        source = self._spark.readStream.schema(NODES).option("cleanSource", "delete")
        rows = source.parquet(self._intake.rows)
        windows = whole_windows(rows, self._settings.window_s, self._settings.late_s)
        writer = windows.writeStream.queryName("windows").outputMode("append").foreachBatch(self._close)
        return writer.option("checkpointLocation", below(self._place, "windows")).trigger(**trigger).start()

    def _close(self, rows: DataFrame, batch: int) -> None:
        """Handles one micro-batch. Its rows are read once from the state, and written."""
        whole = loads.in_windows(self._scratch.keep("whole", rows), self._settings.window_s)
        if whole.isEmpty():
            return
        load = self._tables.keep("node_load", loads.node_load(whole), batch=batch)
        self._tables.keep("drops", losses.drops(whole), batch=batch)
        merged = self._tables.keep("histograms", latency.histograms(whole), batch=batch)
        over_time = ["role", WINDOW]
        self._tables.keep("latency_over_time", latency.percentiles(merged, over_time), batch=batch)
        spread = self._tables.keep("imbalance_over_time", loads.imbalance(load, over_time), batch=batch)
        in_order = sorted(collected(spread), key=lambda row: (row[WINDOW], row["role"]))
        self._judge(batch, collected(load), in_order)

    def _judge(self, batch: int, load: Rows, spread: Rows) -> None:
        watches = self._watches(batch)
        measured = alerts.measure(load, spread, self._settings.window_s, self._settings.rules)
        changed = [alert for start, values in measured.items() for alert in watches.observe(start, values)]
        self._storage.write_whole(self._alerts(batch), json.dumps(watches.state()))
        for earlier in [number for number in self._batches() if number < batch][:-1]:
            self._storage.remove(self._alerts(earlier))
        nodes = len({(row["role"], row["node"]) for row in load})
        self._reporter.closed(Closed(min(measured), max(measured), nodes, spread, tuple(changed)))

    def _watches(self, batch: int | None) -> Watches:
        """The watches before a micro-batch; None: after the last one."""
        earlier = [number for number in self._batches() if batch is None or number < batch]
        state = json.loads(self._storage.read(self._alerts(earlier[-1]))) if earlier else None
        return Watches(self._settings.rules, self._settings.window_s, state)

    def _batches(self) -> list[int]:
        names = self._storage.names(below(self._place, "alerts"))
        return sorted(int(name.removesuffix(".json")) for name in names)

    def _alerts(self, batch: int) -> str:
        return below(self._place, "alerts", f"{batch}.json")

    def _claim(self, directory: str, out: str) -> None:
        """Checks that the output is of this directory and these settings, or claims it."""
        address = below(self._place, _SETTINGS)
        kept = {
            "source": directory,
            "window_s": self._settings.window_s,
            "late_s": self._settings.late_s,
            "columns": len(NODES),  # the stream's state has these columns
        }
        if self._storage.exists(address):
            if (there := json.loads(self._storage.read(address))) != kept:
                raise AnalysisError(f"{out} follows with other settings ({there}): name another --out")
            return
        if any(self._storage.exists(below(out, f"{name}.parquet")) for name in WRITTEN):
            raise AnalysisError(f"{out} holds the tables of another analysis: name another --out")
        self._storage.make_directory(below(self._place, "alerts"))
        self._storage.write_whole(address, json.dumps(kept))

    def _tell_late(self, query: StreamingQuery) -> None:
        """Reports late rows. A waiting stream reports progress without rows on its next micro-batch: that is
        skipped."""
        count = 0
        for progress in query.recentProgress:
            if progress["numInputRows"] and progress["batchId"] > self._late_up_to:
                self._late_up_to = progress["batchId"]
                count += sum(state["numRowsDroppedByWatermark"] for state in progress["stateOperators"])
        if count:
            self._reporter.late(count)
