"""Every table equals what plain Python computes from the same files (`plain`): counts exactly, ratios up
to rounding, percentiles up to their bucket."""

from __future__ import annotations

import csv
import json
import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from hbroker.spark_analysis.batch import Settings, analyse
from hbroker.spark_analysis.errors import AnalysisError
from hbroker.spark_analysis.measures import accounts, cost, forecast, loads
from hbroker.spark_analysis.measures.hierarchy import DEEPEST, FAN_OUT_EDGES
from hbroker.spark_analysis.measures.latency import PERMILLES
from hbroker.spark_analysis.progress import Progression
from hbroker.spark_analysis.tables import collected
from tests.analysis import files, plain
from tests.analysis.networks import BEGIN, Network, networks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark takes long on a busy machine

Row = dict[str, Any]
WINDOW_S = 10
FIRST = 4


@settings(max_examples=2)
@given(network=networks())
def test_every_table_equals_plain_python(spark: SparkSession, network: Network) -> None:
    with tempfile.TemporaryDirectory() as place:
        source, out = Path(place) / "telemetry", Path(place) / "out"
        source.mkdir()
        for kind, rows in (("topics", network.topics), ("nodes", network.nodes)):
            files.write_all(source, kind, rows)
        summary = analyse(
            spark, f"file://{source}", f"file://{out}", Settings(WINDOW_S, FIRST), Progression(spark)
        )
        assert summary["rows"] == {"topics": len(network.topics), "nodes": len(network.nodes)}
        assert summary["skipped"] == []
        assert summary == json.loads((out / "summary.json").read_text("utf-8"))
        _check_loads(out, network.nodes)
        _check_hierarchy(out, network.topics)
        _check_troubles(out, network.nodes)
        _check_accounts(out, network)
        _check_csv(out)


def _check_loads(out: Path, nodes: list[Row]) -> None:
    found = by(table(out, "node_load"), "role", "node", "window_start")
    expected = plain.node_load(nodes, WINDOW_S)
    assert_rows(found, expected)
    over_time = by(table(out, "imbalance_over_time"), "role", "window_start")
    loads_at: dict[Any, list[int]] = defaultdict(list)
    for (role, _, window), row in expected.items():
        loads_at[role, window].append(row["load"])
    assert_rows(over_time, {key: plain.imbalance(values) for key, values in loads_at.items()})
    totals = {
        key: plain.load(rows) for key, rows in plain.grouped(nodes, lambda r: (r["role"], r["node"])).items()
    }
    of_nodes = by(table(out, "nodes"), "role", "node")
    assert {key: row["load"] for key, row in of_nodes.items()} == totals
    for (role, node), row in of_nodes.items():
        mine = [r for r in nodes if (r["role"], r["node"]) == (role, node)]
        assert all(row[name] == sum(r[name] for r in mine) for name in plain.COUNTS)
    for role in {role for role, _ in totals}:
        of_role = sorted(load for (its, _), load in totals.items() if its == role)
        ranked = sorted((row for (its, _), row in of_nodes.items() if its == role), key=lambda r: r["rank"])
        assert [row["load"] for row in ranked] == of_role
        for index, row in enumerate(ranked, start=1):
            assert close(row["cumulative_share"], plain.ratio(sum(of_role[:index]), sum(of_role)))


def _check_hierarchy(out: Path, topics: list[Row]) -> None:
    assert_rows(by(table(out, "hot_topics"), "role", "rank"), plain.hot_topics(topics, FIRST))
    assert_rows(by(table(out, "subtrees"), "role", "depth", "rank"), plain.subtrees(topics, FIRST, DEEPEST))
    assert_rows(by(table(out, "fan_out"), "role", "at_most"), plain.fan_out(topics, FAN_OUT_EDGES))


def _check_troubles(out: Path, nodes: list[Row]) -> None:
    found = by(table(out, "drops"), "role", "node", "window_start", "reason")
    assert {key: row["dropped"] for key, row in found.items()} == plain.drops(nodes, WINDOW_S)
    of_role = plain.grouped(nodes, lambda r: (r["role"], None))
    of_node = plain.grouped(nodes, lambda r: (r["role"], r["node"]))
    percentiles = by(table(out, "latency"), "role", "node")
    for key, rows in {**of_role, **of_node}.items():
        for name, permille in PERMILLES.items():
            bucket = plain.percentile(rows, permille)
            if bucket is None:
                assert key not in percentiles
            else:
                low, high = 2 ** (bucket / 4), 2 ** ((bucket + 1) / 4)
                assert low < percentiles[key][name] < high
                assert max(percentiles[key][name] / low, high / percentiles[key][name]) < 1.0906


def _check_accounts(out: Path, network: Network) -> None:
    for row in table(out, "accounts"):
        mine = [r for r in network.nodes if (r["role"], r["node"]) == (row["role"], row["node"])]
        assert row["agrees"]
        for name in plain.COUNTS:
            assert row[name] == row[f"topics_{name}"] == sum(r[name] for r in mine)


def _check_csv(out: Path) -> None:
    """Checks that each small table has a CSV file with the same rows and columns."""
    paths = list(out.glob("*.csv"))
    assert len(paths) > 10
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            written = list(csv.DictReader(file))
        rows = table(out, path.stem)
        assert len(written) == len(rows)
        assert sorted(map(_as_text, rows)) == sorted(str(sorted(row.items())) for row in written)


def _as_text(row: Row) -> str:
    """A row as CSV has it: times in ISO 8601, null as an empty text."""
    cells = {
        name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
        for name, value in row.items()
    }
    return str(sorted((name, "" if cell is None else str(cell)) for name, cell in cells.items()))


def test_too_many_windows_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    files.write_all(tmp_path / "in", "nodes", [node_row("a", 0), node_row("a", 5_000)])
    with pytest.raises(AnalysisError, match="1,000 are the most"):
        analyse(spark, f"file://{tmp_path}/in", f"file://{tmp_path}/out", Settings(1), Progression(spark))
    assert not (tmp_path / "out" / "report.html").exists()


def test_counters_that_differ_from_the_sums_of_topics_are_reported(spark: SparkSession) -> None:
    counts = ", ".join(["role string", "node string", *(f"{name} bigint" for name in plain.COUNTS)])
    nodes = [
        ("node", "right", 30, 9, 2, 1, 30, 2),
        ("node", "short", 30, 9, 2, 1, 30, 2),
        ("gateway", "silent", 1, 0, 0, 0, 1, 0),
    ]
    topics = [
        ("node", "right", 30, 9, 2, 1, 30, 2),
        ("node", "short", 29, 9, 2, 1, 30, 2),
        ("node", "mute", 5, 0, 0, 0, 5, 0),
    ]
    table = accounts.accounts(spark.createDataFrame(nodes, counts), spark.createDataFrame(topics, counts))
    found = by(collected(table), "role", "node")
    assert {node for (_, node), row in found.items() if row["agrees"]} == {"right"}
    assert (found["node", "short"]["messages_in"], found["node", "short"]["topics_messages_in"]) == (30, 29)
    assert (found["node", "mute"]["messages_in"], found["node", "mute"]["topics_messages_in"]) == (0, 5)


def test_costs_are_fitted_for_each_node_alone(spark: SparkSession) -> None:
    generator = random.Random(7)
    rows = []
    for node, (base, in_us, out_us) in {"a": (0.01, 9, 4), "b": (0.2, 2, 30)}.items():
        for i in range(40):
            taken, handed = generator.randrange(9_000), generator.randrange(20_000)
            cpu = (base + (in_us * taken + out_us * handed) / 1e6) * generator.uniform(0.95, 1.05)
            rows.append(node_row(node, i, messages_in=taken, messages_out=handed, cpu_s=cpu))
    found = by(collected(cost.costs(frame(spark, rows))), "role", "node")
    for node in ("a", "b"):
        base, taken_s, handed_s = plain.least_squares([row for row in rows if row["node"] == node])
        fitted = found["node", node]
        assert math.isclose(fitted["base_cpu"], base, rel_tol=1e-4)
        assert math.isclose(fitted["in_us"], taken_s * 1e6, rel_tol=1e-4)
        assert math.isclose(fitted["out_us"], handed_s * 1e6, rel_tol=1e-4)
        assert 0.9 < fitted["r2"] < 1


def test_costs_are_null_if_the_data_do_not_determine_them(spark: SparkSession) -> None:
    """Too few intervals, or a load or CPU time that never changes: null. A fixed proportion of messages in
    and out: a shared cost."""
    few = [node_row("few", i, messages_in=i, cpu_s=i / 9) for i in range(cost.FEWEST_INTERVALS - 1)]
    still = [node_row("still", i, messages_in=i, cpu_s=0.1) for i in range(20)]
    level = [node_row("level", i, messages_in=50, cpu_s=0.1 + i / 99) for i in range(20)]
    fixed = [
        node_row("fixed", i, messages_in=i * 100, messages_out=i * 300, cpu_s=0.05 + i * 100 * 16e-6)
        for i in range(20)
    ]
    found = by(collected(cost.costs(frame(spark, [*few, *still, *level, *fixed]))), "role", "node")
    for node in ("few", "still", "level"):
        assert [found["node", node][name] for name in ("base_cpu", "in_us", "out_us", "r2")] == [None] * 4
    told = found["node", "fixed"]
    assert math.isclose(told["in_us"] + 3 * told["out_us"], 16, rel_tol=1e-3)
    assert math.isclose(told["base_cpu"], 0.05, rel_tol=1e-3)


def test_costs_that_are_noise_are_null(spark: SparkSession) -> None:
    """If messages do not explain the CPU time, or only with negative costs, there is no cost and no
    capacity."""
    generator = random.Random(11)
    idle = [f"idle{i}" for i in range(60)]
    rows = [
        node_row(node, i, messages_in=generator.randrange(90), cpu_s=generator.uniform(0.001, 0.01))
        for node in idle
        for i in range(20)
    ]
    for i in range(20):
        taken, handed = generator.randrange(900), generator.randrange(900)
        busy = {"messages_in": taken, "messages_out": handed}
        rows.append(node_row("cheaper", i, **busy, cpu_s=0.2 + (90 * taken - 30 * handed) / 1e6))
        rows.append(node_row("no base", i, **busy, cpu_s=max(0.0, (90 * taken + 60 * handed) / 1e6 - 0.02)))
    nodes = frame(spark, rows)
    fitted = cost.costs(nodes)
    found = by(collected(fitted), "role", "node")
    told = [node for (_, node), row in found.items() if row["in_us"] is not None]
    assert len(told) <= 3, "one in a hundred, by chance"
    assert {"cheaper", "no base"}.isdisjoint(told)
    for row in found.values():
        costs = [row[name] for name in ("base_cpu", "in_us", "out_us")]
        assert costs == [None] * 3 or min(costs) >= 0
        assert 0 <= row["r2"] <= 1
    for (_, node), row in by(collected(forecast.forecast(nodes, fitted)), "role", "node").items():
        assert (row["outlook"] == "unknown") == (node not in told)
        assert (row["capacity"] is None) == (row["busy"] is None) == (node not in told)


def test_the_forecast_finds_when_the_load_reaches_the_capacity(spark: SparkSession) -> None:
    """One worker, 100 µs for a message, 20 more messages per second each second: 10,000 a second after 500
    s."""
    generator = random.Random(3)
    rows = []
    for i in range(100):
        handed = generator.randrange(100)
        rising = 20 * i
        rows.append(
            node_row("up", i, messages_in=rising, messages_out=handed, cpu_s=rising * 1e-4 + handed * 1e-6)
        )
        rows.append(node_row("level", i, messages_in=handed, cpu_s=handed * 1e-4))
        rows.append(node_row("full", i, messages_in=10_100 + handed, cpu_s=1.01 + handed * 1e-4))
    nodes = frame(spark, rows)
    found = by(collected(forecast.forecast(nodes, cost.costs(nodes))), "role", "node")
    up = found["node", "up"]
    assert up["outlook"] == "rising"
    assert abs(up["saturates_at"] - (BEGIN + timedelta(seconds=500))) < timedelta(seconds=5)
    assert math.isclose(up["growth"], 20 * 3600, rel_tol=0.02)
    assert found["node", "level"]["outlook"] == "steady"
    assert found["node", "full"]["outlook"] == "saturated"
    assert found["node", "full"]["saturates_at"] is None


@pytest.mark.parametrize(
    ("shares", "gini", "jain", "max_over_mean"),
    [([5, 5, 5, 5], 0.0, 1.0, 1.0), ([0, 0, 0, 8], 0.75, 0.25, 4.0), ([0, 0], None, None, None)],
)
def test_the_imbalance_indices_have_the_right_extremes(
    spark: SparkSession,
    shares: list[int],
    gini: float | None,
    jain: float | None,
    max_over_mean: float | None,
) -> None:
    rows = [{"role": "node", "load": share} for share in shares]
    (row,) = collected(loads.imbalance(spark.createDataFrame(rows, "role string, load bigint"), ["role"]))
    assert close(row["gini"], gini)
    assert close(row["jain"], jain)
    assert close(row["max_over_mean"], max_over_mean)


def node_row(node: str, second: int, **values: Any) -> Row:
    """An interval of a node in which nothing happened but the given values."""
    zeros = dict.fromkeys([field.name for field in files.SCHEMAS["nodes"] if str(field.type) == "int64"], 0)
    row = {
        **zeros,
        "node": node,
        "role": "node",
        "run": 1,
        "at": BEGIN + timedelta(seconds=second),
        "seconds": 1.0,
        "workers": 1,
        "cpu_s": 0.0,
        "drops": {},
        "latency": [0] * 96,
        "latency_sampled": 1,
    }
    return {"address": None, "parent": None, "subtrees": [], **row, **values}


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """The rows as Spark reads them."""
    from hbroker.spark_analysis.data.schema import NODES

    return spark.createDataFrame([tuple(row[name] for name in NODES.names) for row in rows], NODES)


def table(out: Path, name: str) -> list[Row]:
    """A written table, read by pyarrow."""
    rows: list[Row] = pq.read_table(out / f"{name}.parquet").to_pylist()
    for row in rows:
        for column, value in row.items():
            if isinstance(value, datetime):
                row[column] = value.replace(tzinfo=BEGIN.tzinfo)
    return rows


def by(rows: list[Row], *names: str) -> dict[Any, Row]:
    """The rows by their keys. No key occurs twice."""
    keyed = {tuple(row[name] for name in names): row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


def assert_rows(found: Mapping[Any, Row], expected: Mapping[Any, Row]) -> None:
    """Checks that the keys are the same, and that each row has at least the expected values: integers and
    texts exactly."""
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        for name, value in row.items():
            if isinstance(value, float) or value is None:
                assert close(found[key][name], value), (key, name)
            else:
                assert found[key][name] == value, (key, name)


def close(one: float | None, other: float | None) -> bool:
    """Whether the numbers are equal up to rounding. None equals only None."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
