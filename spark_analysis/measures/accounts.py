"""Compares each process's own counters with the sums of its rows by topic.

Each process writes both. The rows by topic, with that of unnamed topics, add up to the process's counters. If
they do not, a file of one kind is missing, or the process was killed between writing the two files.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .loads import COUNTS


def accounts(loads: DataFrame, totals: DataFrame) -> DataFrame:
    """Each node's counters from `node_load`, the sums of its `topic_totals`, and whether they agree."""
    by_node = loads.groupBy("role", "node").agg(*[F.sum(name).alias(name) for name in COUNTS])
    by_topic = totals.groupBy("role", "node").agg(*[F.sum(name).alias(f"topics_{name}") for name in COUNTS])
    rows = by_node.join(by_topic, on=["role", "node"], how="full")
    pairs = [(F.coalesce(name, F.lit(0)), F.coalesce(f"topics_{name}", F.lit(0))) for name in COUNTS]
    agrees = F.lit(True)
    for ours, theirs in pairs:
        agrees = agrees & (ours == theirs)
    columns = [
        column.alias(name)
        for name, pair in zip(COUNTS, pairs, strict=True)
        for column, name in zip(pair, (name, f"topics_{name}"), strict=True)
    ]
    return rows.select("role", "node", *columns, agrees.alias("agrees"))
