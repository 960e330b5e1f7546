"""When the CPU time of a node's workers will be used up, if the trend continues.

For each node the rates of messages taken in and of copies sent are fitted with a line over time (least
squares). `cost` gives the CPU time of a rate, so CPU time is a line, too. The node is saturated when the line
reaches the CPU time of its workers: one second per second each.

A line has no daily cycle: measurements from morning to noon would predict far too much for the night. So the
prediction reaches at most `REACH` times the measured time ahead.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

REACH: Final = 10
"""A factor of the length of the measured time."""

SATURATED: Final = "saturated"
RISING: Final = "rising"
STEADY: Final = "steady"
UNKNOWN: Final = "unknown"


def forecast(nodes: DataFrame, costs: DataFrame) -> DataFrame:
    """The outlook of each node. `nodes`: interval rows; `costs`: of `cost.costs`.

    - `busy`: the share of its workers' CPU time that its load needs at the end of the lines.
    - `load_rate`, `growth`: messages handled per second at the end, and their increase per hour.
    - `capacity`: the most messages per second that it could handle, in the proportion at the end.
    - `saturates_at`: when the line reaches the capacity; null if not within reach.
    - `outlook`: saturated, rising (saturated within reach), steady, unknown (no cost is known).
    """
    lines = _lines(nodes)
    rows = lines.join(F.broadcast(costs), on=["role", "node"], how="left")
    wanted = F.col("base_cpu") + (F.col("in_us") * F.col("in_end") + F.col("out_us") * F.col("out_end")) / 1e6
    growth = (F.col("in_us") * F.col("in_slope") + F.col("out_us") * F.col("out_slope")) / 1e6
    rows = rows.withColumns({"cpu_end": wanted, "cpu_slope": growth})
    rows = rows.withColumn("left_s", F.try_divide(F.col("workers") - F.col("cpu_end"), "cpu_slope"))
    rows = rows.withColumn("outlook", _outlook())
    load_rate = F.col("in_end") + F.col("out_end")
    per_message = F.try_divide(F.col("cpu_end") - F.col("base_cpu"), load_rate)
    ends = F.timestamp_micros((F.unix_micros("last") + F.col("left_s") * 1e6).cast("bigint"))
    return rows.select(
        "role",
        "node",
        "workers",
        F.try_divide("cpu_end", "workers").alias("busy"),
        load_rate.alias("load_rate"),
        ((F.col("in_slope") + F.col("out_slope")) * 3600).alias("growth"),
        F.when(per_message > 0, (F.col("workers") - F.col("base_cpu")) / per_message).alias("capacity"),
        F.when(F.col("outlook") == RISING, ends).alias("saturates_at"),
        "outlook",
    )


def _lines(nodes: DataFrame) -> DataFrame:
    """The line of each rate: its slope per second, and its value at the end of the last interval."""
    time = F.unix_micros("at") / 1e6
    rates = nodes.where(F.col("seconds") > 0).select(
        "role",
        "node",
        "workers",
        "at",
        "seconds",
        time.alias("time"),
        (F.col("messages_in") / F.col("seconds")).alias("in_rate"),
        (F.col("messages_out") / F.col("seconds")).alias("out_rate"),
    )
    end = F.max(F.col("time") + F.col("seconds"))
    return rates.groupBy("role", "node").agg(
        F.max_by("workers", "at").alias("workers"),
        F.timestamp_micros((end * 1e6).cast("bigint")).alias("last"),
        (end - F.min("time")).alias("observed_s"),
        *[column for side in ("in", "out") for column in _line(f"{side}_rate", side, end)],
    )


def _line(rate: str, side: str, end: Column) -> list[Column]:
    """Slope and end value. With one interval, or all at one time, the slope is undefined and taken as 0."""
    slope = F.coalesce(F.regr_slope(rate, "time"), F.lit(0.0))
    value = F.avg(rate) + slope * (end - F.avg("time"))
    return [slope.alias(f"{side}_slope"), F.greatest(value, F.lit(0.0)).alias(f"{side}_end")]


def _outlook() -> Column:
    within_reach = (F.col("cpu_slope") > 0) & (F.col("left_s") <= REACH * F.col("observed_s"))
    return (
        F.when(F.col("cpu_end").isNull(), UNKNOWN)
        .when(F.col("cpu_end") >= F.col("workers"), SATURATED)
        .when(within_reach, RISING)
        .otherwise(STEADY)
    )
