"""Percentiles of latency, from histograms that are added up.

Histograms of equal buckets merge exactly: the sum of counts is the histogram of all. A percentile is found by
nearest rank: p99 is the value below or at which lie at least 99% of all. Its bucket is exact; within it, the
value is told as the bucket's geometric middle, so that it is off by a factor of at most 2^(1/8), 9.1%.
(That does not hold in the first and the last bucket, which have no edge on one side.)

A histogram that was sampled, 1 in n, counts n times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from .loads import WINDOW
from .schema import BUCKETS, BUCKETS_PER_OCTAVE

PERMILLES: Final = {"p50_us": 500, "p90_us": 900, "p99_us": 990, "p999_us": 999}


def histograms(nodes: DataFrame) -> DataFrame:
    """The histogram of each node in each window, in one pass; `histogram[i]` is bucket i. `nodes` are
    interval rows `in_windows`."""
    weight = F.coalesce(F.col("latency_sampled").cast("bigint"), F.lit(1))
    sums = [F.coalesce(F.sum(F.get("latency", F.lit(i)) * weight), F.lit(0)) for i in range(BUCKETS)]
    return nodes.groupBy("role", "node", WINDOW).agg(
        F.count(F.lit(1)).alias("intervals"), F.array(*sums).alias("histogram")
    )


def percentiles(merged: DataFrame, by: Sequence[str]) -> DataFrame:
    """`p50_us` to `p999_us`, in microseconds, of each group of `histograms`; `messages` were measured. A
    group without any is left out."""
    buckets = merged.select(*by, F.posexplode("histogram").alias("bucket", "count"))
    counts = buckets.groupBy(*by, "bucket").agg(F.sum("count").alias("count")).where(F.col("count") > 0)
    up_to = Window.partitionBy(*by).orderBy("bucket")
    so_far = F.sum("count").over(up_to.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    ranks = counts.withColumn("so_far", so_far).withColumn(
        "all", F.sum("count").over(Window.partitionBy(*by))
    )
    return ranks.groupBy(*by).agg(
        F.max("all").alias("messages"),
        *[_reached(permille).alias(name) for name, permille in PERMILLES.items()],
    )


def _reached(permille: int) -> Column:
    """The middle of the first bucket by whose end so many of a thousand are counted. In whole numbers: no
    rounding decides."""
    is_reached = F.col("so_far") * 1000 >= F.col("all") * permille
    return _middle_us(F.min(F.when(is_reached, F.col("bucket"))))


def _middle_us(bucket: Column) -> Column:
    return F.pow(F.lit(2.0), (bucket + 0.5) / BUCKETS_PER_OCTAVE)
