"""`--follow` makes the same tables as the batch over the same files, in whatever steps they arrive."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from hbroker.spark_analysis.batch import Settings as BatchSettings
from hbroker.spark_analysis.batch import analyse
from hbroker.spark_analysis.data.intake import Taken
from hbroker.spark_analysis.errors import AnalysisError
from hbroker.spark_analysis.follow import Closed, Follower, Settings
from hbroker.spark_analysis.measures.alerts import Alert, Rules, Thresholds
from hbroker.spark_analysis.measures.loads import WINDOW
from hbroker.spark_analysis.progress import Progression
from tests.analysis import files, plain
from tests.analysis.files import Row
from tests.analysis.test_tables import assert_rows, by, node_row, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark takes long on a busy machine

BEGIN = datetime(2025, 3, 1, 23, 59, 40, tzinfo=UTC)
"""Before any file is written, and shortly before midnight."""

SETTINGS = Settings(window_s=10, late_s=20, every_s=0.2, rules=Rules(imbalance=Thresholds(1.5, 3.0), after=2))


class Reports:
    """Everything that a follower reported."""

    def __init__(self) -> None:
        self.skipped: dict[str, str] = {}
        self.windows: list[Any] = []
        self.changed: list[Alert] = []
        self.standing: list[Alert] = []
        self.too_late = 0

    def took(self, taken: Taken) -> None:
        self.skipped |= {Path(file.path).name: file.reason for file in taken.skipped}

    def closed(self, closed: Closed) -> None:
        self.windows.append((closed.begin, closed.end))
        self.changed.extend(closed.changed)

    def restored(self, told: Sequence[Alert]) -> None:
        self.standing = list(told)

    def late(self, count: int) -> None:
        self.too_late += count


class Crash(Reports):
    """Raises after the windows are in the tables, and before Spark notes that they are."""

    def closed(self, closed: Closed) -> None:
        super().closed(closed)
        raise InterruptedError("a crash")


def test_following_in_steps_makes_the_tables_of_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Three runs with one output. The second fails when its windows are written. Files that are damaged,
    foreign, empty, ahead of their time or late are reported."""
    source, out = tmp_path / "in", tmp_path / "out"
    good = [files.write(source, "nodes", _rows(node, 0, 25)) for node in ("a", "b")]
    _add_invalid_files(good[0])
    first = Reports()
    _follower(spark, source, out, first).run_once()
    assert first.windows == [], "the watermark is at 5"
    assert {name: reason.partition(":")[0] for name, reason in first.skipped.items()} == {
        "notes.txt": "foreign",
        "nodes-1-7.parquet": "malformed or truncated",
        "nodes-1-8.parquet": "its intervals begin more than 300 s after it was written",
        "nodes-1-9.parquet": "malformed or truncated",
    }

    files.write(source, "nodes", _rows("late", -8, -5))
    for node in ("a", "b"):
        files.write(source, "nodes", _rows(node, 25, 90), sequence=1)
    damaged = files.write(source, "nodes", _rows("a", 50, 60), sequence=2)
    files.damage(damaged, "latency")
    second = Crash()
    with pytest.raises(StreamingQueryException, match="a crash"):
        _follower(spark, source, out, second).run(threading.Event())
    assert second.skipped == {damaged.name: "damaged: its footer is whole, its rows are not"}
    assert second.too_late == 1, "three intervals of one node in one window"
    assert second.windows == [(BEGIN, BEGIN + timedelta(seconds=50))]
    assert [(alert.alert, alert.state, alert.node) for alert in second.changed] == [
        ("imbalance", "raised", "a")
    ]
    third = Reports()
    _follower(spark, source, out, third).run_once()
    assert third.standing == third.changed == second.changed, "in the same words"
    assert third.windows == second.windows
    check_tables(out, [row for node in ("a", "b") for row in _rows(node, 0, 60)], SETTINGS.window_s)


def check_tables(out: Path, nodes: list[Row], window_s: int) -> None:
    """Checks that each window is there once, and that its rows are those of these intervals."""
    expected = plain.node_load(nodes, window_s)
    assert_rows(by(table(out, "node_load"), "role", "node", WINDOW), expected)
    found = by(table(out, "drops"), "role", "node", WINDOW, "reason")
    assert {key: row["dropped"] for key, row in found.items()} == plain.drops(nodes, window_s)
    of_windows = plain.grouped(nodes, lambda row: (row["role"], plain.window_of(row["at"], window_s)))
    spread = {
        key: plain.imbalance(
            [expected[key[0], node, key[1]]["load"] for node in {row["node"] for row in rows}]
        )
        for key, rows in of_windows.items()
    }
    assert_rows(by(table(out, "imbalance_over_time"), "role", WINDOW), spread)
    latencies = by(table(out, "latency_over_time"), "role", WINDOW)
    for key, rows in of_windows.items():
        bucket = plain.percentile(rows, 990)
        assert bucket is None or 2 ** (bucket / 4) < latencies[key]["p99_us"] < 2 ** ((bucket + 1) / 4)


def test_an_output_folder_belongs_to_one_analysis(spark: SparkSession, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    files.write(source, "nodes", _rows("a", 0, 3))
    _follower(spark, source, out, Reports())
    with pytest.raises(AnalysisError, match="other settings"):
        Follower(spark, f"file://{source}", f"file://{out}", Settings(window_s=30), Reports())
    with pytest.raises(AnalysisError, match="of `--follow`"):
        analyse(spark, f"file://{source}", f"file://{out}", BatchSettings(), Progression(spark))
    (tmp_path / "other" / "node_load.parquet").mkdir(parents=True)
    with pytest.raises(AnalysisError, match="of another analysis"):
        _follower(spark, source, tmp_path / "other", Reports())


def _follower(spark: SparkSession, source: Path, out: Path, heard: Reports) -> Follower:
    return Follower(spark, f"file://{source}", f"file://{out}", SETTINGS, heard)


def _rows(node: str, first: int, end: int) -> list[Row]:
    """Rows in which node a carries nine tenths of the load, and node b drops some messages."""
    return [
        node_row(
            node,
            second,
            at=BEGIN + timedelta(seconds=second),
            messages_in=900 + second if node == "a" else 100,
            cpu_s=0.25,
            latency=[second % 7] * 96,
            drops={"queue_full": second} if node == "b" and 0 < second < 5 else {},
        )
        for second in range(first, end)
    ]


def _add_invalid_files(good: Path) -> None:
    """Puts invalid files beside a valid one: a foreign one, a truncated one, one of a clock that is ahead,
    and an empty one."""
    folder = good.parent
    (folder / "notes.txt").write_text("a note")
    (folder / "nodes-1-7.parquet").write_bytes(good.read_bytes()[:500])
    (folder / "nodes-1-9.parquet").write_bytes(b"")
    rows = _rows("a", 0, 2)
    ahead = files.write(good.parents[2], "nodes", rows, sequence=8)
    written = rows[-1]["at"] - timedelta(seconds=301)
    os.utime(ahead, (written.timestamp(), written.timestamp()))
