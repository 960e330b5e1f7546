"""What was dropped, for which reason."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .loads import WINDOW


def drops(nodes: DataFrame) -> DataFrame:
    """Each reason at each node in each window, where anything was dropped. `nodes` are interval rows
    `in_windows`."""
    reasons = nodes.select("role", "node", WINDOW, F.explode("drops").alias("reason", "dropped"))
    return (
        reasons.where(F.col("dropped") > 0)
        .groupBy("role", "node", WINDOW, "reason")
        .agg(F.sum("dropped").alias("dropped"))
        .select("role", "node", WINDOW, "reason", "dropped")
    )
