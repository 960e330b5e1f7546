"""Synthetic cities have the requested size, are the same for the same seed, and have the files that nodes
would write."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from hbroker.spark_analysis.city import BASE_CPU, IN_US, OUT_US, City, topic_rows
from hbroker.spark_analysis.data import reading
from hbroker.spark_analysis.data.schema import FILE_NAME
from hbroker.spark_analysis.errors import AnalysisError
from hbroker.spark_analysis.measures import cost
from hbroker.spark_analysis.progress import Progression
from hbroker.spark_analysis.synthesize import main, synthesize
from hbroker.spark_analysis.tables import collected
from tests.analysis import files, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark takes long on a busy machine

CITY = City(rows=6_000, nodes=3, buildings=2, seed=5)


@pytest.fixture(scope="module")
def city(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The telemetry of a small city."""
    out = tmp_path_factory.mktemp("city") / "telemetry"
    synthesize(spark, CITY, f"file://{out}", Progression(spark))
    return out


def test_the_files_fulfil_the_contract(city: Path) -> None:
    made = [path for path in city.rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert {path.parent.name for path in made} >= {"node=root", "node=n001", "node=gateway1"}
    for path in made:
        name = FILE_NAME.fullmatch(path.name)
        assert name is not None
        schema = pq.read_schema(path)
        assert schema.metadata[b"hbroker.telemetry"] == b"1"
        ours = files.SCHEMAS[name["kind"]]
        assert schema.names == ours.names
        for field in ours:
            assert _same(schema.field(field.name).type, field.type), field
        rows = pq.read_table(path, columns=["node"])
        assert {f"node={node}" for node in rows["node"].unique().to_pylist()} == {path.parent.name}
    assert not [path for path in city.iterdir() if path.name.startswith(".staging")]


def test_there_are_as_many_rows_and_topics_as_requested(city: Path) -> None:
    topics = _all(city, "topics")
    assert len(topics) == CITY.rows
    assert len(topics["topic"].unique()) == CITY.topics
    assert len({(row["node"], row["at"], row["topic"]) for row in topics.to_pylist()}) == CITY.rows


def test_equal_seeds_make_equal_rows_with_any_number_of_tasks(spark: SparkSession) -> None:
    def rows(city: City, tasks: int) -> list[tuple[object, ...]]:
        return sorted(tuple(row) for row in topic_rows(spark, city, tasks).collect())

    assert rows(CITY, 1) == rows(CITY, 3)
    assert rows(CITY, 1) != rows(City(rows=6_000, nodes=3, buildings=2, seed=6), 1)


def test_the_counters_of_nodes_are_the_sums_of_their_topics(city: Path) -> None:
    sums = {}
    for kind in ("nodes", "topics"):
        table = _all(city, kind).group_by(["role", "node", "at"])
        rows = table.aggregate([(name, "sum") for name in plain.COUNTS]).to_pylist()
        sums[kind] = {
            (r["role"], r["node"], r["at"]): [r[f"{name}_sum"] for name in plain.COUNTS] for r in rows
        }
    assert sums["nodes"] == sums["topics"] != {}


def test_the_regression_finds_the_costs_that_were_put_in(spark: SparkSession, city: Path) -> None:
    nodes = reading.read(spark, reading.find(spark, f"file://{city}"), "nodes")
    (root,) = (row for row in collected(cost.costs(nodes)) if row["node"] == "root")
    assert math.isclose(root["base_cpu"], BASE_CPU, rel_tol=0.5)
    assert math.isclose(root["in_us"] + 1.5 * root["out_us"], IN_US + 1.5 * OUT_US, rel_tol=0.1)


def test_an_existing_directory_is_not_overwritten(spark: SparkSession, city: Path) -> None:
    with pytest.raises(AnalysisError, match="is there already"):
        synthesize(spark, CITY, f"file://{city}", Progression(spark))


@pytest.mark.parametrize("arguments", [[], ["--out", "x", "--rows", "0"], ["--out", "x", "--conf", "key"]])
def test_invalid_flags_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def _all(city: Path, kind: str) -> pa.Table:
    paths = [str(path) for path in city.rglob(f"{kind}-*.parquet")]
    return ds.dataset(paths, format="parquet").to_table()


def _same(theirs: pa.DataType, ours: pa.DataType) -> bool:
    """Whether the types are equal, except for the names and the nullability of the elements of lists and
    maps."""
    for is_kind, parts in (
        (pa.types.is_list, ("value_type",)),
        (pa.types.is_map, ("key_type", "item_type")),
    ):
        if is_kind(ours):
            return bool(is_kind(theirs)) and all(getattr(theirs, p) == getattr(ours, p) for p in parts)
    return bool(theirs == ours)
