"""The distribution of the load over the nodes, and over time.

The **load** of a node is the messages that it handled: those that it took in, and the copies that it sent. Of
a large message each fragment counts, because each is handled separately. (`whole_in` and `whole_out` count
the message once.) Its **share** is its part of the load of all processes of its role. Gateways are counted
apart from owners, because a message that goes over a gateway is handled by both.

An interval belongs to the window in which it begins. Windows are aligned with the clock: those of 10 s begin
at :00, :10, ….
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

WINDOW: Final = "window_start"

COUNTS: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out", "whole_in", "whole_out")
_SUMS: Final = (*COUNTS, "datagrams_in", "datagrams_out")
_PEAKS: Final = (
    "rss_bytes",
    "sessions",
    "subscriptions",
    "publishers",
    "connections",
    "queued_messages",
    "queued_bytes",
)


def in_windows(rows: DataFrame, seconds: int) -> DataFrame:
    """The rows, each with the begin of its window."""
    return rows.withColumn(WINDOW, F.window("at", f"{seconds} seconds")["start"])


def load() -> Column:
    """Messages handled."""
    return F.col("messages_in") + F.col("messages_out")


def node_load(nodes: DataFrame) -> DataFrame:
    """Each node in each window: sums of counters, and maxima of gauges. `nodes`: interval rows `in_windows`.

    `seconds`: how much of the window its intervals cover. `busy`: the CPU time used, over that of its
    workers; 1: all of it. `measured`: the messages whose latency was measured.
    """
    sums = [F.sum(name).alias(name) for name in _SUMS]
    peaks = [F.max(name).alias(name) for name in _PEAKS]
    capacity = F.sum(F.col("seconds") * F.col("workers"))
    rows = nodes.groupBy("role", "node", WINDOW).agg(
        F.count(F.lit(1)).alias("intervals"),
        F.sum("seconds").alias("seconds"),
        F.max("workers").alias("workers"),
        F.sum("cpu_s").alias("cpu_s"),
        F.try_divide(F.sum("cpu_s"), capacity).alias("busy"),
        F.sum(load()).alias("load"),
        F.sum(_total(F.map_values("drops"))).alias("dropped"),
        F.sum(_total(F.col("latency")) * F.col("latency_sampled")).alias("measured"),
        *sums,
        *peaks,
    )
    return rows.select(
        "role",
        "node",
        WINDOW,
        "intervals",
        "seconds",
        "load",
        _share_within("role", WINDOW).alias("share"),
        "workers",
        "cpu_s",
        "busy",
        "dropped",
        "measured",
        *_SUMS,
        *_PEAKS,
    )


def node_totals(loads: DataFrame) -> DataFrame:
    """Each node over all windows of `node_load`, in the order of its load.

    `cumulative_share` is the share of this node and all nodes with less load: the Lorenz curve, at `rank /
    nodes`.
    """
    totals = loads.groupBy("role", "node").agg(
        F.sum("load").alias("load"),
        *[F.sum(name).alias(name) for name in COUNTS],
        F.sum("seconds").alias("seconds"),
        F.sum("cpu_s").alias("cpu_s"),
        F.try_divide(F.sum("cpu_s"), F.sum(F.col("seconds") * F.col("workers"))).alias("busy"),
    )
    ascending = Window.partitionBy("role").orderBy("load", "node")
    so_far = F.sum("load").over(ascending.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    everything = F.sum("load").over(Window.partitionBy("role"))
    return totals.select(
        "role",
        "node",
        F.row_number().over(ascending).alias("rank"),
        "load",
        _share_within("role").alias("share"),
        F.try_divide(so_far, everything).alias("cumulative_share"),
        F.try_divide("messages_out", "messages_in").alias("fan_out"),
        *COUNTS,
        "seconds",
        "cpu_s",
        "busy",
    )


def imbalance(loads: DataFrame, by: Sequence[str]) -> DataFrame:
    """How unevenly `load` is distributed over the rows of each group.

    - `max_over_mean`: 1 is even; the number of nodes if one node has all. This is what a plan lowers.
    - `variation`: coefficient of variation, the population's standard deviation over the mean: 0 is even.
    - `gini`: Gini coefficient: 0 is even, (n-1)/n if one of n has all.
    - `jain`: Jain's fairness index: 1 is even, 1/n if one of n has all.

    All are null if there was no load.
    """
    ranked = Window.partitionBy(*by).orderBy("load")
    ranks = loads.withColumn("place", F.row_number().over(ranked))
    value = F.col("load").cast("double")
    count, total = F.count(F.lit(1)), F.sum(value)
    rows = ranks.groupBy(*by).agg(
        count.alias("nodes"),
        F.sum("load").alias("load"),
        F.max("load").alias("largest"),
        F.try_divide(total, count).alias("mean"),
        F.try_divide(F.max(value) * count, total).alias("max_over_mean"),
        F.try_divide(F.stddev_pop(value) * count, total).alias("variation"),
        (F.try_divide(2 * F.sum(F.col("place") * value), count * total) - (count + 1) / count).alias("gini"),
        F.try_divide(total * total, count * F.sum(value * value)).alias("jain"),
    )
    return rows.select(*by, "nodes", "load", "largest", "mean", "max_over_mean", "variation", "gini", "jain")


def _total(counts: Column) -> Column:
    return F.aggregate(counts, F.lit(0).cast("bigint"), Column.__add__)


def _share_within(*group: str) -> Column:
    return F.try_divide(F.col("load"), F.sum("load").over(Window.partitionBy(*group)))
