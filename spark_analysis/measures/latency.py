"""Percentiles of latency, from histograms that are added up.

Histograms of equal buckets merge exactly: the sums of their counts are the histogram of all. A percentile is
found by nearest rank: p99 is the smallest value such that at least 99% of all values are at or below it. Its
bucket is exact. Within it, the value is given as the bucket's geometric mean, which is off by a factor of at
most 2^(1/8), 9.1%. (That does not hold for the first and the last bucket, which are open on one side.)

A histogram that was sampled, 1 in n, counts n times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..data.schema import BUCKETS, BUCKETS_PER_OCTAVE
from .loads import WINDOW

PERMILLES: Final = {"p50_us": 500, "p90_us": 900, "p99_us": 990, "p999_us": 999}


def histograms(nodes: DataFrame) -> DataFrame:
    """The histogram of each node in each window, as rows of non-empty buckets. `nodes`: interval rows
    `in_windows`."""
    weight = F.coalesce("latency_sampled", F.lit(1)).cast("bigint")
    counts = nodes.select("role", "node", WINDOW, weight.alias("weight"), F.posexplode("latency"))
    return (
        counts.where((F.col("col") > 0) & (F.col("pos") < BUCKETS))
        .groupBy("role", "node", WINDOW, F.col("pos").alias("bucket"))
        .agg(F.sum(F.col("col") * F.col("weight")).alias("count"))
    )


def percentiles(merged: DataFrame, by: Sequence[str]) -> DataFrame:
    """`p50_us` to `p999_us` in microseconds of each group of `histograms`, and the number of `messages`
    measured.

    A group without measurements has no row.
    """
    counts = merged.groupBy(*by, "bucket").agg(F.sum("count").alias("count"))
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
    """The geometric mean of the first bucket at whose end this number in a thousand is reached.

    Integer arithmetic, so that rounding does not decide.
    """
    is_reached = F.col("so_far") * 1000 >= F.col("all") * permille
    return _middle_us(F.min(F.when(is_reached, F.col("bucket"))))


def _middle_us(bucket: Column) -> Column:
    return F.pow(F.lit(2.0), (bucket + 0.5) / BUCKETS_PER_OCTAVE)
