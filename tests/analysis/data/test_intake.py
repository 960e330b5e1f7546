"""The intake reads each file once, whenever a run ends, and its memory of files is bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from hbroker.spark_analysis.data import intake
from hbroker.spark_analysis.data.intake import Intake
from tests.analysis import files
from tests.analysis.following.test_follow import BEGIN
from tests.analysis.test_tables import node_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark takes long on a busy machine


def test_a_decision_of_a_killed_run_is_carried_out_by_the_next_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Killed between the decision and its execution: the next run makes the same rows, under the same
    name, and takes no file again."""
    rows = [node_row("a", second, at=BEGIN) for second in range(5)]
    files.write(tmp_path / "in", "nodes", rows)
    files.write(tmp_path / "in", "topics", [_topic_row()])
    taken = _intake(spark, tmp_path).take()
    assert taken is not None
    assert (taken.files, taken.rows, taken.skipped) == (1, 5, ())
    done = tmp_path / "place" / "intake" / "0.parquet"
    assert pq.read_table(done).num_rows == 5
    done.unlink()
    again = _intake(spark, tmp_path)
    assert pq.read_table(done).num_rows == 5
    assert again.take() is None


def test_names_of_removed_files_are_forgotten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_ROUNDS_KEPT", 4)
    source = tmp_path / "in"
    source.mkdir()
    for round in range(10):
        (source / f"{round}.txt").write_text("no telemetry")
        if round == 1:
            (source / "0.txt").unlink()
        taken = _intake(spark, tmp_path).take()
        assert taken is not None
        assert [Path(file.path).name for file in taken.skipped] == [f"{round}.txt"]
    decisions = sorted((tmp_path / "place" / "files").glob("*.json"))
    assert [path.name for path in decisions] == ["7.json", "8.json", "9.json"]
    before = json.loads(decisions[0].read_text())["before"]
    assert [Path(path).name for path in before] == [f"{round}.txt" for round in range(1, 7)]


def _intake(spark: SparkSession, place: Path) -> Intake:
    return Intake(spark, f"file://{place}/in", f"file://{place}/place")


def _topic_row() -> files.Row:
    counts = dict.fromkeys(("messages_in", "bytes_in", "messages_out", "bytes_out"), 1)
    return {"node": "a", "role": "node", "run": 1, "at": BEGIN, "seconds": 1.0, "topic": "x", **counts}
