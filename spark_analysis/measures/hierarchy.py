"""The distribution of the load over the hierarchy of topics.

Everything comes from one aggregation, `topic_totals`: one pass over the rows of all intervals gives a row for
each topic and node. Spark aggregates in two stages: each task adds up its rows, and only the sums are
shuffled, one for each task and topic. So a topic with a thousand times the traffic of others does not skew
the shuffle, and needs no salting. All other functions work on totals, not on intervals.

A ranking of `first` rows is made in two stages, too: Spark limits each task's rows before the shuffle
(`WindowGroupLimit` in its plans), so no task sorts all subtrees of a depth.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .loads import COUNTS, load

DEEPEST: Final = 8
"""Deeper levels are counted with the subtree at this depth."""

FAN_OUT_EDGES: Final = (0, *(2**i for i in range(17)))
"""Copies sent for each message taken in: the upper edges of the buckets; the last bucket has no upper
edge."""


def topic_totals(topics: DataFrame) -> DataFrame:
    """The totals of each topic at each node, over all intervals. `intervals`: the number of rows summed."""
    sums = [F.sum(name).alias(name) for name in COUNTS]
    return topics.groupBy("role", "node", "topic").agg(
        F.count(F.lit(1)).alias("intervals"), *sums, F.sum(load()).alias("load")
    )


def hot_topics(totals: DataFrame, first: int) -> DataFrame:
    """The `first` topics of each role with the largest load.

    `share`: of all load of the role, with that of unnamed topics. `main_node`: the node that handled most of
    it.
    """
    rows = totals.where(F.col("topic").isNotNull()).groupBy("role", "topic").agg(*_sums(), *_nodes())
    ranked = _ranked(rows, ["role"], "topic", first)
    return _with_share(ranked, totals).select(
        "role", "rank", "topic", "load", "share", *COUNTS, _fan_out(), "nodes", "main_node"
    )


def subtrees(totals: DataFrame, first: int) -> DataFrame:
    """The `first` subtrees with the largest load, at each depth of each role.

    A subtree has the topic of its own name and all topics below it; depth 1 is the first level. A subtree
    with more than 1/`first` of the load is listed, and so are all above it: a parent's load is never less.
    """
    levels = F.split("topic", "/", -1)
    depths = F.sequence(F.lit(1), F.least(F.size(levels), F.lit(DEEPEST)))
    prefixes = totals.where(F.col("topic").isNotNull()).select(
        "role",
        "node",
        levels.alias("levels"),
        F.explode(depths).alias("depth"),
        *COUNTS,
        "load",
    )
    named = prefixes.withColumn("subtree", F.array_join(F.slice("levels", F.lit(1), F.col("depth")), "/"))
    at_nodes = named.groupBy("role", "depth", "subtree", "node").agg(
        *_sums(), F.count(F.lit(1)).alias("topics")
    )
    rows = at_nodes.groupBy("role", "depth", "subtree").agg(
        *_sums(), *_nodes(), F.sum("topics").alias("topics")
    )
    ranked = _ranked(rows, ["role", "depth"], "subtree", first)
    return _with_share(ranked, totals).select(
        "role",
        "depth",
        "rank",
        "subtree",
        "load",
        "share",
        *COUNTS,
        _fan_out(),
        "topics",
        "nodes",
        "main_node",
    )


def fan_out(totals: DataFrame) -> DataFrame:
    """The number of topics by `messages_out / messages_in`, in buckets.

    `above`, `at_most`: the edges of the bucket (`FAN_OUT_EDGES`); `at_most` null: no upper edge. A topic that
    had copies but no message (which was taken in before) is above all edges.
    """
    topics = totals.where(F.col("topic").isNotNull()).groupBy("role", "topic").agg(*_sums())
    passed = [(F.col("messages_out") > edge * F.col("messages_in")).cast("int") for edge in FAN_OUT_EDGES]
    bucket = reduce(Column.__add__, passed)
    edges = F.array(*[F.lit(edge) for edge in FAN_OUT_EDGES])
    rows = (
        topics.withColumn("bucket", bucket)
        .groupBy("role", "bucket")
        .agg(
            F.count(F.lit(1)).alias("topics"),
            F.sum("messages_in").alias("messages_in"),
            F.sum("messages_out").alias("messages_out"),
        )
    )
    return rows.select(
        "role",
        F.get(edges, F.col("bucket") - 1).alias("above"),
        F.get(edges, F.col("bucket")).alias("at_most"),
        "topics",
        "messages_in",
        "messages_out",
    )


def _sums() -> list[Column]:
    return [F.sum(name).alias(name) for name in (*COUNTS, "load")]


def _nodes() -> list[Column]:
    """For rows of one node each: the number of nodes, and the node with most load (with equal loads, the last
    by name)."""
    return [
        F.count(F.lit(1)).alias("nodes"),
        F.max_by("node", F.struct("load", "node")).alias("main_node"),
    ]


def _fan_out() -> Column:
    return F.try_divide("messages_out", "messages_in").alias("fan_out")


def _ranked(rows: DataFrame, by: list[str], name: str, first: int) -> DataFrame:
    order = Window.partitionBy(*by).orderBy(F.col("load").desc(), name)
    return rows.withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= first)


def _with_share(rows: DataFrame, totals: DataFrame) -> DataFrame:
    """Adds `share`, of the load of the role. There are two roles, so their sums are broadcast."""
    of_roles = totals.groupBy("role").agg(F.sum("load").alias("of_role"))
    joined = rows.join(F.broadcast(of_roles), on="role", how="inner")
    return joined.withColumn("share", F.try_divide("load", "of_role"))
