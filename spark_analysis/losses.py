"""What was dropped, for which reason.

Most of it is a network at work, and harms nobody: a first contact without proof of its address, a datagram
that came twice. Messages that a node had taken and did not deliver are told apart: they are lost.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .loads import WINDOW
from .tables import Rows

LOSSES: Final = frozenset(
    {
        "queue_full",
        "session_ended",
        "session_expired",
        "away",
        "retained_full",
        "too_many_records",
        "will_unpublished",
    }
)
"""The reasons by which a message that a node had taken did not arrive."""


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


def lost(drops: Rows) -> int:
    """How many messages of a table of drops are lost."""
    return sum(row["dropped"] for row in drops if row["reason"] in LOSSES)
