"""Drops by reason, and which of them are losses.

Most drops are normal and harmless: a first contact without a proved address, a duplicate datagram. A
message that a node had taken in and did not deliver is lost.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..tables import Rows
from .loads import WINDOW

LOSSES: Final = frozenset(
    {
        "queue_full",
        "session_ended",
        "session_expired",
        "offline",
        "retained_full",
        "too_many_records",
        "will_unpublished",
    }
)
"""The reasons for which a message that a node had taken in did not arrive."""


def drops(nodes: DataFrame) -> DataFrame:
    """The drops of each reason at each node in each window. `nodes`: interval rows `in_windows`."""
    reasons = nodes.select("role", "node", WINDOW, F.explode("drops").alias("reason", "dropped"))
    return (
        reasons.where(F.col("dropped") > 0)
        .groupBy("role", "node", WINDOW, "reason")
        .agg(F.sum("dropped").alias("dropped"))
        .select("role", "node", WINDOW, "reason", "dropped")
    )


def lost(drops: Rows) -> int:
    """The number of lost messages in a table of drops."""
    return sum(row["dropped"] for row in drops if row["reason"] in LOSSES)
