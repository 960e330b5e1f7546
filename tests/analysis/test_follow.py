"""What `--follow` leaves equals what the batch makes of the same files, in whatever steps they come."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from hbroker.spark_analysis import latency, loads, losses, reading
from hbroker.spark_analysis.alerts import Alert, Rules, Thresholds
from hbroker.spark_analysis.batch import Settings as BatchSettings
from hbroker.spark_analysis.batch import analyse
from hbroker.spark_analysis.errors import AnalysisError
from hbroker.spark_analysis.follow import Closed, Follower, Settings
from hbroker.spark_analysis.intake import Taken
from hbroker.spark_analysis.progress import Silent
from hbroker.spark_analysis.tables import collected
from tests.analysis import files
from tests.analysis.files import Row
from tests.analysis.test_tables import node_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark takes its time where others want the CPUs, too.

BEGIN = datetime(2025, 3, 1, 23, 59, 40, tzinfo=UTC)
"""Before any file is written, and shortly before midnight."""

SETTINGS = Settings(window_s=10, late_s=20, rules=Rules(imbalance=Thresholds(1.5, 3.0), after=2))


class Heard:
    """All that a follower told."""

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

    def stands(self, told: Sequence[Alert]) -> None:
        self.standing = list(told)

    def late(self, count: int) -> None:
        self.too_late += count


def test_in_steps_it_makes_what_the_batch_makes(spark: SparkSession, tmp_path: Path) -> None:
    """Two runs on the same output: what is damaged, foreign, empty, ahead of its time or late is told."""
    source, out = tmp_path / "in", tmp_path / "out"
    good = [files.write(source, "nodes", _rows(node, 0, 45)) for node in ("a", "b")]
    _spoil(good[0])
    first = _follow(spark, source, out)
    assert sorted(first.skipped) == [
        "nodes-1-7.parquet",
        "nodes-1-8.parquet",
        "nodes-1-9.parquet",
        "notes.txt",
    ]
    assert [word in first.skipped[f"nodes-1-{i}.parquet"] for i, word in ((7, "truncated"), (8, "clock"))]
    assert first.standing == []
    assert [(alert.alert, alert.state, alert.node) for alert in first.changed] == [
        ("imbalance", "raised", "a")
    ]

    late = files.write(source, "nodes", _rows("c", 3, 6))
    for node in ("a", "b"):
        files.write(source, "nodes", _rows(node, 45, 90), sequence=1)
    damaged = files.write(source, "nodes", _rows("a", 50, 60), sequence=2)
    files.damage(damaged, "latency")
    second = _follow(spark, source, out)
    assert list(second.skipped) == [damaged.name]
    assert "damaged" in second.skipped[damaged.name]
    assert second.too_late == 1, "three intervals of one node in one window"
    assert second.standing == first.changed
    late.unlink()
    damaged.unlink()

    found = reading.find(spark, f"file://{source}")
    ahead = [file.path for file in found.usable if file.path.endswith("nodes-1-8.parquet")]
    rows = loads.in_windows(reading.read(spark, found.without(ahead, ""), "nodes"), SETTINGS.window_s)
    load, merged = loads.node_load(rows), latency.histograms(rows)
    over_time = ["role", loads.WINDOW]
    expected = {
        "node_load": load,
        "drops": losses.drops(rows),
        "latency_over_time": latency.percentiles(merged, over_time),
        "imbalance_over_time": loads.imbalance(load, over_time),
    }
    for name, table in expected.items():
        assert _table(out, name) == _until(table, 60), name


def test_an_output_is_of_one_analysis(spark: SparkSession, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    files.write(source, "nodes", _rows("a", 0, 3))
    Follower(spark, f"file://{source}", f"file://{out}", SETTINGS, Heard())
    with pytest.raises(AnalysisError, match="other settings"):
        Follower(spark, f"file://{source}", f"file://{out}", Settings(window_s=30), Heard())
    with pytest.raises(AnalysisError, match="of `--follow`"):
        analyse(spark, f"file://{source}", f"file://{out}", BatchSettings(), Silent())
    (tmp_path / "other" / "node_load.parquet").mkdir(parents=True)
    with pytest.raises(AnalysisError, match="of another analysis"):
        Follower(spark, f"file://{source}", f"file://{tmp_path / 'other'}", SETTINGS, Heard())


def _follow(spark: SparkSession, source: Path, out: Path) -> Heard:
    heard = Heard()
    Follower(spark, f"file://{source}", f"file://{out}", SETTINGS, heard).run_once()
    return heard


def _rows(node: str, first: int, end: int) -> list[Row]:
    """Node a carries nine tenths, and b drops some."""
    return [
        node_row(
            node,
            second,
            at=BEGIN + timedelta(seconds=second),
            messages_in=900 + second if node == "a" else 100,
            cpu_s=0.25,
            latency=[second % 7] * 96,
            drops={"queue_full": second} if node == "b" and second < 5 else {},
        )
        for second in range(first, end)
    ]


def _spoil(good: Path) -> None:
    """Beside a good file: one that is none, one that is cut, one of a clock that is ahead, one that is
    empty."""
    folder = good.parent
    (folder / "notes.txt").write_text("a note")
    (folder / "nodes-1-7.parquet").write_bytes(good.read_bytes()[:500])
    (folder / "nodes-1-9.parquet").write_bytes(b"")
    rows = _rows("a", 0, 2)
    ahead = files.write(good.parents[2], "nodes", rows, sequence=8)
    written = rows[-1]["at"] - timedelta(seconds=301)
    os.utime(ahead, (written.timestamp(), written.timestamp()))


def _table(out: Path, name: str) -> list[str]:
    table = ds.dataset(out / f"{name}.parquet", partitioning="hive").to_table()
    return sorted(map(_exactly, table.drop_columns(["batch"]).to_pylist()))


def _until(table: DataFrame, seconds: int) -> list[str]:
    """The rows of a table in windows that end by then."""
    end = BEGIN + timedelta(seconds=seconds)
    return sorted(_exactly(row) for row in collected(table) if row[loads.WINDOW] < end)


def _exactly(row: Row) -> str:
    """Sums of fractions depend on the order in which they are added."""
    start = row[loads.WINDOW].replace(tzinfo=UTC).isoformat()
    rounded = {name: f"{value:.9g}" if isinstance(value, float) else value for name, value in row.items()}
    return str({**rounded, loads.WINDOW: start})
