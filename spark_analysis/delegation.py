"""From what was measured to a plan, and the plan as a topology that `hbroker apply` carries out.

The load that is planned with is CPU time: what a message taken over costs, and a copy handed on, at the
median node by what they handled (`cost`), in a second in which the network is in use (`pace`). Nodes differ
in their capacity, which is that of their workers. The load of a subtree does not depend on who owned it, so
it does not matter what moved while it was measured.

Subtrees with less than `FINEST` of all load are not told apart: so there are few, however many topics there
are, and the planner works in the driver. What they hold moves with what is around it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from . import planning
from .hierarchy import DEEPEST
from .pace import seconds_at_pace
from .schema import NODE
from .tables import Rows, collected

FINEST: Final = 1 / 2_000
"""Of all load: a subtree with less is no unit of its own, unless a node claims it."""

_EQUAL: Final = (1.0, 1.0)
"""Microseconds of a message and of a copy, where no node's were found."""


@dataclass(frozen=True)
class Delegation:
    """A plan, and what it was made with. `addresses`, `workers`: of each node, by name; `in_us`, `out_us`:
    what a message and a copy cost."""

    plan: planning.Plan
    addresses: dict[str, str]
    workers: dict[str, int]
    in_us: float
    out_us: float

    @property
    def nodes(self) -> Rows:
        """A row for each node: its load before and after, in CPU-seconds a second, and what it is to own."""
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
        """A topology file: YAML, whose values are written as JSON, which is YAML too."""
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
    """The plan for the nodes as they were last, or why there is none.

    `totals`: of `hierarchy.topic_totals`; `nodes`: interval rows; `costs`: of `cost.costs`;
    `node_load`: of `loads.node_load`.
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
    """Messages and copies of each subtree that has `FINEST` of all load at the owners, or is claimed; with
    `""` for all of them.

    What no subtree can be named for stays in there: unnamed topics, those of `$`, empty levels, control
    characters.
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
    """Each node as it was in its last interval, the root first."""
    facts = F.struct("at", "address", "parent", "subtrees", "workers")
    latest = nodes.where(F.col("role") == NODE).groupBy("node").agg(F.max_by(facts, "at").alias("last"))
    rows = latest.select("node", "last.address", "last.parent", "last.subtrees", "last.workers")
    return collected(rows.orderBy(F.col("parent").isNotNull(), "node"))


def _claims(row: dict[str, Any]) -> tuple[str, ...]:
    """What a node claims: the root nothing but the whole hierarchy."""
    return ("",) if row["parent"] is None else tuple(subtree for subtree in row["subtrees"] if subtree)


def _weights(costs: Rows, node_load: Rows) -> tuple[float, float]:
    """What a message and a copy cost, in microseconds: at the median node by what both together cost there,
    where a node counts by what it handled, for of an idle one regression knows little. Where it found no node
    at which both cost something, they are taken for equal."""
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
