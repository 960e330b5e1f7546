"""Spark's plans for the transforms: two stages where keys may be skewed, and no Python on executors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hbroker.spark_analysis.data.schema import NODES, TOPICS
from hbroker.spark_analysis.measures import accounts, forecast, hierarchy, latency, loads, losses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

pytestmark = pytest.mark.timeout(600)


def test_sums_are_computed_before_the_shuffle(spark: SparkSession) -> None:
    plan = _plan(hierarchy.topic_totals(_empty(spark, TOPICS)))
    after, shuffle, before = plan.partition("Exchange hashpartitioning(role")
    assert shuffle
    assert "functions=[count(1), sum(messages_in" in after
    assert "functions=[partial_count(1), partial_sum(messages_in" in before


@pytest.mark.parametrize("ranking", ["hot_topics", "subtrees"])
def test_rankings_are_limited_before_the_shuffle(spark: SparkSession, ranking: str) -> None:
    totals = hierarchy.topic_totals(_empty(spark, TOPICS))
    plan = _plan(getattr(hierarchy, ranking)(totals, 10))
    assert re.search(r"WindowGroupLimit .*Partial", plan)
    assert re.search(r"WindowGroupLimit .*Final", plan)
    assert "BroadcastHashJoin" in plan
    assert "SortMergeJoin" not in plan


def test_no_python_runs_on_executors(spark: SparkSession) -> None:
    totals = hierarchy.topic_totals(_empty(spark, TOPICS))
    nodes = loads.in_windows(_empty(spark, NODES), 10)
    node_load = loads.node_load(nodes)
    costs = spark.range(1).selectExpr("'node' role", "'a' node", "0d base_cpu", "1d in_us", "1d out_us")
    for table in (
        totals,
        hierarchy.hot_topics(totals, 10),
        hierarchy.subtrees(totals, 10),
        hierarchy.fan_out(totals),
        node_load,
        loads.node_totals(node_load),
        loads.imbalance(node_load, ["role"]),
        losses.drops(nodes),
        latency.percentiles(latency.histograms(nodes), ["role"]),
        forecast.forecast(nodes, costs),
        accounts.accounts(node_load, totals),
    ):
        assert "Python" not in _plan(table)


def _empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """An empty table as if it was read from files. Spark plans differently for tables that it knows to be
    small."""
    return spark.range(10**6).selectExpr(
        *[
            f"cast(if(id < 0, '', null) as string) {f.name}"
            for f in schema
            if f.dataType.simpleString() == "string"
        ],
        *[
            f"from_json(if(id < 0, '', null), 'x {f.dataType.simpleString()}').x {f.name}"
            for f in schema
            if f.dataType.simpleString() != "string"
        ],
    )


def _plan(table: DataFrame) -> str:
    execution = table._jdf.queryExecution()
    return str(execution.executedPlan().toString())
