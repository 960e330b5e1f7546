"""From measured loads to a plan, and to a topology file that `hbroker apply` executes.

The planned load is CPU time: what a message taken in and a copy sent cost at the median node, weighted by the
messages handled (`cost`), in a second in which the network is in use (`pace`). The capacity of a node is that
of its workers. The load of a subtree does not depend on its owner, so moves during the measurement do not
matter.

Subtrees with less than `FINEST` of all load are not distinguished. So there are few of them, whatever the
number of topics, and the planner runs in the driver. Their load moves with the subtree around them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..data.schema import NODE
from ..measures.hierarchy import DEEPEST
from ..measures.pace import seconds_at_pace
from ..tables import Rows, collected
from . import planning

FINEST: Final = 1 / 2_000
"""A share of all load: a smaller subtree is no unit of its own, unless a node claims it."""

_EQUAL: Final = (1.0, 1.0)
"""Microseconds of a message and of a copy, if no node's costs are known."""


@dataclass(frozen=True)
class Delegation:
    """A plan, and its inputs. `addresses`, `workers`: by node; `in_us`, `out_us`: the cost of a message and
    of a copy, in microseconds."""

    plan: planning.Plan
    addresses: dict[str, str]
    workers: dict[str, int]
    in_us: float
    out_us: float

    @property
    def nodes(self) -> Rows:
        """A row for each node: its load before and after, in CPU seconds per second, and its planned
        subtrees."""
        return [
            {
                "node": node.name,
                "capacity": node.capacity,
                "before": self.plan.before[node.name],
                "after": self.plan.after[node.name],
                "subtrees": " ".join(node.subtrees),
            }
            for node in self.plan.nodes
        ]

    @property
    def moves(self) -> Rows:
        """A row for each move, in order."""
        return [
            {
                "step": step,
                "subtree": move.subtree,
                "source": move.source,
                "target": move.target,
                "merged": move.is_merged,
                "load": move.load,
            }
            for step, move in enumerate(self.plan.moves, 1)
        ]

    def topology(self) -> str:
        """A topology file: YAML, with values written as JSON, which is valid YAML."""
        lines = [
            "# Made by `hbroker analyze`; `hbroker apply` carries it out on the running network.",
            "nodes:",
        ]
        for node in self.plan.nodes:
            values: dict[str, object] = {"name": node.name, "subtree": node.subtrees[0]}
            if node.subtrees[1:]:
                values["also"] = list(node.subtrees[1:])
            values |= {"listen": self.addresses[node.name], "workers": self.workers[node.name]}
            lines.append(f"  - {json.dumps(values, ensure_ascii=False)}")
        predicted = {name: round(load, 9) for name, load in self.plan.after.items()}
        plan = {"in_us": round(self.in_us, 6), "out_us": round(self.out_us, 6), "predicted": predicted}
        return "\n".join([*lines, f"plan: {json.dumps(plan)}", ""])


def delegate(totals: DataFrame, nodes: DataFrame, costs: Rows, node_load: Rows) -> Delegation | str:
    """The plan for the nodes in their last state, or the reason why there is none.

    `totals`: of `hierarchy.topic_totals`; `nodes`: interval rows; `costs`: of `cost.costs`; `node_load`: of
    `loads.node_load`.
    """
    seconds = seconds_at_pace(node_load)
    last = _last(nodes)
    roots = [row for row in last if row["parent"] is None]
    if not seconds:
        return "no message was handled"
    if len(roots) != 1:
        return f"{len(roots)} nodes of the telemetry are roots, and a network has one"
    claims = {row["node"]: _claims(row) for row in last}
    unowned = [name for name, subtrees in claims.items() if not subtrees]
    if unowned:
        return f"node {unowned[0]} held nothing when it was last heard of"
    in_us, out_us = _weights(costs, node_load)
    measured = subtree_messages(totals, [subtree for held in claims.values() for subtree in held])
    loads = {
        row["subtree"]: (row["messages_in"] * in_us + row["messages_out"] * out_us) / 1e6 / seconds
        for row in collected(measured)
    }
    network = planning.Network(
        tuple(planning.Node(row["node"], claims[row["node"]], float(row["workers"])) for row in last),
        {"": 0.0, **{subtree: 0.0 for held in claims.values() for subtree in held}, **loads},
    )
    try:
        plan = planning.plan(network)
    except ValueError as error:
        return str(error)
    return Delegation(
        plan,
        {row["node"]: row["address"] for row in last},
        {row["node"]: row["workers"] for row in last},
        in_us,
        out_us,
    )


def subtree_messages(totals: DataFrame, claimed: Iterable[str]) -> DataFrame:
    """Messages and copies of each subtree that has at least `FINEST` of all load at the owners, or is
    claimed; `""` has those of all.

    Topics that no subtree can name are counted only there: unnamed topics, those that begin with `$`, and
    those with control characters. A topic with an empty level counts for the levels before it.
    """
    owned = totals.where(F.col("role") == NODE)
    of_all = owned.agg(F.sum("load").alias("of_all"))
    levels = F.split(F.coalesce("topic", F.lit("$")), "/", -1)
    empty = F.array_position(levels, "")
    nameable = F.when(empty > 0, (empty - 1).cast("int")).otherwise(F.size(levels))
    stays = F.col("levels")[0].startswith("$") | F.array_join("levels", "/").rlike(r"\p{Cntrl}")
    deepest = F.when(stays, F.lit(0)).otherwise(F.least("nameable", F.lit(DEEPEST)))
    prefixes = owned.select(
        levels.alias("levels"), nameable.alias("nameable"), "messages_in", "messages_out", "load"
    ).withColumn("depth", F.explode(F.sequence(F.lit(0), deepest)))
    subtree = F.array_join(F.slice("levels", F.lit(1), F.col("depth")), "/").alias("subtree")
    rows = prefixes.groupBy(subtree).agg(
        *[F.sum(name).alias(name) for name in ("messages_in", "messages_out", "load")]
    )
    is_claimed = F.col("subtree").isin(sorted(set(claimed)))
    heavy = F.col("load") >= F.col("of_all") * FINEST
    return rows.crossJoin(F.broadcast(of_all)).where(heavy | is_claimed).drop("of_all")


def _last(nodes: DataFrame) -> Rows:
    """Each node in its last interval, the root first."""
    facts = F.struct("at", "address", "parent", "subtrees", "workers")
    latest = nodes.where(F.col("role") == NODE).groupBy("node").agg(F.max_by(facts, "at").alias("last"))
    rows = latest.select("node", "last.address", "last.parent", "last.subtrees", "last.workers")
    return collected(rows.orderBy(F.col("parent").isNotNull(), "node"))


def _claims(row: dict[str, Any]) -> tuple[str, ...]:
    """The subtrees that a node claims; the root claims only the whole hierarchy."""
    return ("",) if row["parent"] is None else tuple(subtree for subtree in row["subtrees"] if subtree)


def _weights(costs: Rows, node_load: Rows) -> tuple[float, float]:
    """The cost of a message and of a copy, in microseconds: those of the node with the median sum of both.

    The median is weighted by the messages that nodes handled, because the regression of an idle node has
    little data. If at no node both costs are positive, both count as equal.
    """
    handled = Counter[str]()
    for row in node_load:
        if row["role"] == NODE:
            handled[row["node"]] += row["load"]
    found = [
        (row["in_us"], row["out_us"], handled[row["node"]])
        for row in costs
        if row["role"] == NODE and row["in_us"] is not None and row["in_us"] > 0 and row["out_us"] > 0
    ]
    left = sum(load for _, _, load in found) / 2
    for in_us, out_us, load in sorted(found, key=lambda cost: cost[0] + cost[1]):
        left -= load
        if left <= 0:
            return in_us, out_us
    return _EQUAL
