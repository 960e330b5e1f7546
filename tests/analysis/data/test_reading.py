"""Whatever files are in the directory, the analysis goes on, and names the skipped files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hbroker.spark_analysis.batch import Settings, analyse
from hbroker.spark_analysis.data import reading
from hbroker.spark_analysis.data.schema import SCHEMAS
from hbroker.spark_analysis.errors import AnalysisError
from hbroker.spark_analysis.progress import Progression
from tests.analysis import files
from tests.analysis.files import METADATA, Row
from tests.analysis.test_tables import node_row, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark takes long on a busy machine


def test_invalid_files_are_skipped_and_named(spark: SparkSession, tmp_path: Path) -> None:
    good = files.write(tmp_path, "nodes", _rows())
    bad = _write_invalid_files(good)
    (good.parent / ".nodes-1-99.parquet").write_bytes(b"not finished")
    found = reading.find(spark, f"file://{tmp_path}")
    assert [Path(file.path).name for file in found.usable] == [good.name]
    reasons = {Path(file.path).name: file.reason for file in found.skipped}
    assert reasons.keys() == bad.keys()
    for name, word in bad.items():
        assert word in reasons[name], (name, reasons[name])
    assert reading.read(spark, found, "nodes").count() == len(_rows())


def test_a_file_with_damaged_rows_is_skipped_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    """Files with valid footers and damaged pages: Spark reads a part of their rows, which must not count."""
    source, out = tmp_path / "in", tmp_path / "out"
    files.write_all(source, "nodes", [node_row("whole", i, messages_in=5) for i in range(50)])
    for column in ("messages_in", "latency"):
        rows = [node_row(column, i, messages_in=i * 977 % 7919, latency=[i % 13] * 96) for i in range(500)]
        broken = files.write(source, "nodes", rows)
        files.damage(broken, column)
    summary = analyse(spark, f"file://{source}", f"file://{out}", Settings(), Progression(spark))
    skipped = summary["skipped"]
    assert {Path(file["path"]).parent.name for file in skipped} == {"node=messages_in", "node=latency"}
    assert all("damaged" in file["reason"] for file in skipped)
    assert [(row["node"], row["load"]) for row in table(out, "nodes")] == [("whole", 250)]


@pytest.mark.parametrize("name", ["a b", "100%", "[x]{y}*?", "größe"])
def test_unusual_directory_names_are_read(spark: SparkSession, tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    files.write_all(source, "nodes", _rows())
    found = reading.find(spark, f"file://{source}")
    assert reading.read(spark, found, "nodes").count() == len(_rows())
    assert found.skipped == ()
    assert reading.damaged(spark, found, "nodes") == set()


def test_additional_columns_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    path = files.write(tmp_path, "nodes", _rows())
    wider = pq.read_table(path).append_column("later", pa.array([1] * len(_rows())))
    pq.write_table(wider, path)
    found = reading.find(spark, f"file://{tmp_path}")
    assert found.rows("nodes") == len(_rows())
    assert reading.read(spark, found, "nodes").columns == SCHEMAS["nodes"].names


def test_a_file_of_the_former_version_without_whole_messages_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In these files each fragment counts as a message."""
    rows = [node_row("a", second, messages_in=second, whole_in=1) for second in range(20)]
    for number in range(2):
        path = files.write(tmp_path, "nodes", rows, number)
        if number == 0:
            pq.write_table(pq.read_table(path).drop_columns(["whole_in", "whole_out"]), path)
    found = reading.find(spark, f"file://{tmp_path}")
    assert found.skipped == ()
    (row,) = reading.read(spark, found, "nodes").groupBy().sum("whole_in", "whole_out").collect()
    assert tuple(row) == (sum(range(20)) + 20, 0)


def test_a_directory_without_telemetry_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "readme.txt").write_text("nothing here")
    for place, word in (("in", "readme.txt: foreign"), ("nowhere", "no such directory")):
        with pytest.raises(AnalysisError, match=word):
            analyse(
                spark, f"file://{tmp_path}/{place}", f"file://{tmp_path}/out", Settings(), Progression(spark)
            )


def _rows() -> list[Row]:
    return [node_row("a", second) for second in range(20)]


def _write_invalid_files(good: Path) -> dict[str, str]:
    """Writes invalid files beside a valid one. Returns their names, and a word of the reason for each."""
    folder, content, rows = good.parent, good.read_bytes(), pq.read_table(good)
    (folder / "nodes-1-1.parquet").write_bytes(content[: len(content) * 2 // 3])
    (folder / "nodes-1-2.parquet").write_bytes(b"")
    (folder / "nodes-1-3.parquet").write_bytes(b"PAR1 this is no footer PAR1")
    (folder / "nodes-1-4.parquet").write_bytes(content[:-8] + b"\xff\xff\xff\x7fPAR1")
    pq.write_table(rows.slice(0, 0), folder / "nodes-1-5.parquet")
    pq.write_table(rows.replace_schema_metadata({}), folder / "nodes-1-6.parquet")
    pq.write_table(rows.replace_schema_metadata({"hbroker.telemetry": "2"}), folder / "nodes-1-7.parquet")
    pq.write_table(rows.drop_columns(["cpu_s"]), folder / "nodes-1-8.parquet")
    wrong = rows.set_column(rows.schema.get_field_index("run"), "run", pa.array(["1"] * len(rows)))
    pq.write_table(wrong, folder / "nodes-1-9.parquet")
    pq.write_table(pa.table({"x": [1]}, metadata=METADATA), folder / "topics-1-1.parquet")
    (folder / "notes.txt").write_text("a note")
    pq.write_table(rows, folder / "summary.parquet")
    return {
        "nodes-1-1.parquet": "truncated",
        "nodes-1-2.parquet": "truncated",
        "nodes-1-3.parquet": "truncated",
        "nodes-1-4.parquet": "truncated",
        "nodes-1-5.parquet": "empty",
        "nodes-1-6.parquet": "foreign",
        "nodes-1-7.parquet": "of version 2",
        "nodes-1-8.parquet": "no column cpu_s",
        "nodes-1-9.parquet": "column run is string, not bigint",
        "topics-1-1.parquet": "no column node",
        "notes.txt": "its name",
        "summary.parquet": "its name",
    }
