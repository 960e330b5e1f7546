"""The batch job: reads a directory of telemetry, and writes a directory of tables and one page.

The steps run in the order in which tables need each other. The page and `summary.json` are written last, and
those of an earlier run are removed first. So if they exist, all tables are of the same run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from . import report
from .data import reading, selection
from .data.reading import DAMAGED, Found
from .data.runs import Choice, Run, RunSelection
from .data.storage import FOLLOWED, Storage, below
from .errors import AnalysisError
from .measures import accounts, cost, forecast, hierarchy, latency, loads, losses
from .measures.loads import WINDOW
from .plans import delegation, planning
from .progress import Progression
from .tables import Tables, collected

REPORT: Final = "report.html"
SUMMARY: Final = "summary.json"
PLAN: Final = "plan.yaml"

MOST_WINDOWS: Final = 1_000
_WINDOWS_WANTED: Final = 96
_NICE_SECONDS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)


@dataclass(frozen=True)
class Settings:
    """The settings of the job."""

    window_s: int | None = None
    """The length of a window in seconds; None: a round length that makes about a hundred windows."""
    first: int = 100
    """The number of topics, and of subtrees at each depth, in the rankings."""
    wanted: RunSelection = field(default_factory=RunSelection)
    """Which run and which time is analysed; by default all of the latest run."""


def analyse(
    spark: SparkSession, directory: str, out: str, settings: Settings, progress: Progression
) -> dict[str, Any]:
    """Analyses the telemetry in a directory. Returns what is also written as `summary.json`.

    Raises AnalysisError if the directory has no telemetry, if there would be too many windows, or if the
    output directory belongs to `follow`.
    """
    storage = Storage(spark)
    if storage.exists(below(out, FOLLOWED)):
        raise AnalysisError(f"{out} holds the tables of `--follow`: name another --out")
    storage.make_directory(out)
    for last in (REPORT, SUMMARY, PLAN):
        storage.remove(below(out, last))
    return _Job(spark, directory, out, settings, progress).run()


class _Job:
    def __init__(
        self, spark: SparkSession, directory: str, out: str, settings: Settings, progress: Progression
    ) -> None:
        self._spark = spark
        self._out = out
        self._settings = settings
        self._step = progress.step
        self._tables = Tables(spark, out)
        self._choice, self._found = self._find(directory)

    def run(self) -> dict[str, Any]:
        """Runs all steps in order."""
        totals = self._topics()
        begin, end, window_s = self._windows()
        node_load = self._nodes(window_s)
        self._hierarchy(totals)
        self._spread(node_load)
        self._latency()
        self._costs()
        self._tables.keep_small("accounts", accounts.accounts(node_load, totals), ["role", "node"])
        summary = self._summary(begin, end, window_s)
        sections, summary["plan"] = self._plan(totals)
        with self._step("report"):
            page = report.page(summary, self._tables.small, sections)
            Storage(self._spark).write(below(self._out, REPORT), page)
            Storage(self._spark).write(below(self._out, SUMMARY), json.dumps(summary, indent=2) + "\n")
        return summary

    def _find(self, directory: str) -> tuple[Choice, Found]:
        with self._step("files") as step:
            selected = selection.select(self._spark, directory, self._settings.wanted)
            choice, found = selected.choice, selected.found
            rows = sum(found.rows(kind) for kind in ("topics", "nodes"))
            step.tell(f"{len(found.usable):,} with {rows:,} rows, {len(found.skipped):,} skipped")
        with self._step("run") as step:
            step.tell(str(choice) if choice.taken else "none")
        if not found.rows("nodes"):
            reasons = "; ".join(f"{file.path}: {file.reason}" for file in found.skipped[:3])
            raise AnalysisError(
                f"{directory}: no telemetry of nodes is there{f' ({reasons})' if reasons else ''}"
            )
        return choice, found

    def _read(self, kind: str) -> DataFrame:
        return reading.read(self._spark, self._found, kind)

    def _whole(self, kind: str, name: str, aggregate: Callable[[DataFrame], DataFrame]) -> DataFrame:
        """A table that is summed from all rows of a kind, without those of damaged files."""
        while True:
            table = self._tables.keep(name, aggregate(self._read(kind)))
            rows = table.agg(F.sum("intervals")).collect()[0][0] or 0
            if rows == self._found.rows(kind):
                return table
            bad = reading.damaged(self._spark, self._found, kind)
            if not bad:
                raise AnalysisError(f"{kind}: {rows} rows were read of {self._found.rows(kind)}")
            self._found = self._found.without(bad, DAMAGED)

    def _topics(self) -> DataFrame:
        with self._step("totals of topics") as step:
            totals = self._whole("topics", "topics", hierarchy.topic_totals)
            step.tell(f"{totals.select('topic').distinct().count():,} topics")
        return totals

    def _windows(self) -> tuple[datetime, datetime, int]:
        """The begin and the end of the telemetry, and the length of a window in seconds."""
        end = F.timestamp_micros(F.unix_micros("at") + (F.col("seconds") * 1e6).cast("bigint"))
        row = collected(
            self._read("nodes").agg(
                F.min("at").alias("begin"),
                F.max(end).alias("end"),
                F.percentile_approx("seconds", 0.5).alias("s"),
            )
        )[0]
        span = (row["end"] - row["begin"]).total_seconds()
        window_s = self._settings.window_s or _nice(max(span / _WINDOWS_WANTED, row["s"]))
        if span / window_s > MOST_WINDOWS:
            raise AnalysisError(
                f"windows of {window_s} s are {span / window_s:,.0f} in {span:,.0f} s of telemetry, "
                f"and {MOST_WINDOWS:,} are the most: ask for longer ones"
            )
        return row["begin"], row["end"], window_s

    def _nodes(self, window_s: int) -> DataFrame:
        def windows(rows: DataFrame) -> DataFrame:
            return loads.in_windows(rows, window_s)

        with self._step("load of nodes") as step:
            table = self._whole("nodes", "node_load", lambda rows: loads.node_load(windows(rows)))
            self._tables.keep("histograms", latency.histograms(windows(self._read("nodes"))))
            order = ["role", "node", WINDOW]
            self._tables.collect("node_load", table, order)
            self._tables.keep_small("drops", losses.drops(windows(self._read("nodes"))), [*order, "reason"])
            step.tell(f"in windows of {window_s} s")
        return table

    def _hierarchy(self, totals: DataFrame) -> None:
        first = self._settings.first
        with self._step("hottest topics"):
            self._tables.keep_small("hot_topics", hierarchy.hot_topics(totals, first), ["role", "rank"])
        with self._step("hottest subtrees"):
            order = ["role", "depth", "rank"]
            self._tables.keep_small("subtrees", hierarchy.subtrees(totals, first), order)
        with self._step("fan-out"):
            self._tables.keep_small("fan_out", hierarchy.fan_out(totals), ["role", "above"])

    def _spread(self, node_load: DataFrame) -> None:
        with self._step("imbalance"):
            totals = self._tables.keep_small("nodes", loads.node_totals(node_load), ["role", "rank"])
            self._tables.keep_small("imbalance", loads.imbalance(totals, ["role"]), ["role"])
            over_time = loads.imbalance(node_load, ["role", WINDOW])
            self._tables.keep_small("imbalance_over_time", over_time, ["role", WINDOW])

    def _latency(self) -> None:
        with self._step("latencies"):
            merged = self._tables.read("histograms")
            of_roles = latency.percentiles(merged, ["role"]).withColumn("node", F.lit(None).cast("string"))
            of_nodes = latency.percentiles(merged, ["role", "node"])
            self._tables.keep_small("latency", of_nodes.unionByName(of_roles), ["role", "node"])
            over_time = latency.percentiles(merged, ["role", WINDOW])
            self._tables.keep_small("latency_over_time", over_time, ["role", WINDOW])

    def _costs(self) -> None:
        with self._step("cost of a message, forecast"):
            nodes = self._read("nodes")
            costs = self._tables.keep_small("cost", cost.costs(nodes), ["role", "node"])
            self._tables.keep_small("forecast", forecast.forecast(nodes, costs), ["role", "node"])

    def _plan(self, totals: DataFrame) -> tuple[list[report.Section], dict[str, Any]]:
        """The sections for the report, and the entry for the summary. Without a plan, the entry has the
        reason."""
        with self._step("plan") as step:
            nodes = self._read("nodes")
            small = self._tables.small
            found = delegation.delegate(totals, nodes, small["cost"], small["node_load"])
            if isinstance(found, str):
                step.tell(f"none: {found}")
                return [], {"file": None, "reason": found}
            address = below(self._out, PLAN)
            Storage(self._spark).write(address, found.topology())
            plan = found.plan
            before, after = (
                planning.largest_over_mean(loads, plan.nodes) for loads in (plan.before, plan.after)
            )
            step.tell(f"{len(plan.moves):,} to move")
        reported = {
            "file": address,
            "max_over_mean": [before, after],
            "moves": found.moves,
            "nodes": found.nodes,
        }
        return [report.plan_section(found.nodes, found.moves)], reported

    def _summary(self, begin: datetime, end: datetime, window_s: int) -> dict[str, Any]:
        small = self._tables.small
        of_role = {row["role"]: row for row in small["imbalance"]}
        return {
            "source": self._found.directory,
            "runs": [_told(run) for run in self._choice.taken],
            "left_out": [_told(run) for run in self._choice.left_out],
            "since": _iso(self._settings.wanted.since),
            "until": _iso(self._settings.wanted.until),
            "out": self._out,
            "report": below(self._out, REPORT),
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "begin": begin.isoformat(),
            "end": end.isoformat(),
            "window_s": window_s,
            "files": len(self._found.usable),
            "rows": {kind: self._found.rows(kind) for kind in ("topics", "nodes")},
            "skipped": [{"path": file.path, "reason": file.reason} for file in self._found.skipped],
            "imbalance": {
                role: {name: value for name, value in row.items() if name != "role"}
                for role, row in of_role.items()
            },
            "dropped": sum(row["dropped"] for row in small["drops"]),
            "lost": losses.lost(small["drops"]),
            "accounts_agree": all(row["agrees"] for row in small["accounts"]),
            "tables": sorted([*small, "topics", "histograms"]),
        }


def _told(run: Run) -> dict[str, Any]:
    return {"begin": _iso(run.begin), "end": _iso(run.end), "processes": len(run.processes)}


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _nice(seconds: float) -> int:
    """The shortest round length that is at least `seconds`."""
    return next((nice for nice in _NICE_SECONDS if nice >= seconds), _NICE_SECONDS[-1])
