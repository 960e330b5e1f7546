"""The writer and the reader of telemetry share no code: a written file must be what the reader expects."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from hbroker.metrics.families import LOSSES
from hbroker.runtime.telemetry import preload
from hbroker.spark_analysis.data.schema import BUCKETS, FILE_NAME, SCHEMAS, VERSION, VERSION_KEY
from hbroker.spark_analysis.measures import losses
from tests.telemetry.reading import files, rows
from tests.telemetry.test_journal import write_one_of_each

preload()

MAY_BE_NULL = {"topics": ["topic"], "nodes": ["parent"]}
"""docs/telemetry.md."""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A directory with one file of each kind, written by a node's core and journal."""
    write_one_of_each(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_a_file_has_the_columns_that_spark_expects(kind: str, written: Path) -> None:
    (path,) = files(written, kind)
    columns = pq.ParquetFile(path).schema_arrow
    found, wanted = from_arrow_schema(columns), SCHEMAS[kind]
    assert [(field.name, field.dataType.simpleString()) for field in found] == [
        (field.name, field.dataType.simpleString()) for field in wanted
    ]
    assert [field.name for field in columns if field.nullable] == MAY_BE_NULL[kind]
    assert all(wanted[name].nullable for name in MAY_BE_NULL[kind])


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_spark_recognises_a_file_by_its_name_and_its_version(kind: str, written: Path) -> None:
    (path,) = files(written, kind)
    name = FILE_NAME.fullmatch(path.name)
    assert name is not None
    (row,) = rows(written, kind)
    assert (name["kind"], int(name["started_at"]), name["sequence"]) == (kind, row["run"], "0")
    assert pq.ParquetFile(path).metadata.metadata[VERSION_KEY.encode()] == VERSION.encode()


def test_histograms_and_losses_mean_the_same_for_writer_and_reader(written: Path) -> None:
    (row,) = rows(written, "nodes")
    assert len(row["latency"]) == BUCKETS
    assert losses.LOSSES == LOSSES
