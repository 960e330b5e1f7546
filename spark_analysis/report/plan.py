"""The section of the plan: what each node carried, and what it will carry."""

from __future__ import annotations

from ..tables import Rows
from . import charts
from .markup import Content, percent, tag
from .rows import Section, table

MOST_SHOWN = 50


def plan(nodes: Rows, moves: Rows) -> Section:
    """Loads before and after the plan, and its moves. Loads are shares of the capacity of a node's
    workers."""
    before = {row["node"]: row["before"] / row["capacity"] for row in nodes}
    after = {row["node"]: row["after"] / row["capacity"] for row in nodes}
    most = max([*before.values(), *after.values()]) or 1.0
    ordered = sorted(nodes, key=lambda row: -before[row["node"]])[:MOST_SHOWN]
    body: list[list[Content]] = [
        [
            row["node"],
            charts.bar(before[row["node"]] / most, percent(before[row["node"]])),
            charts.bar(after[row["node"]] / most, percent(after[row["node"]])),
        ]
        for row in ordered
    ]
    parts = [table(["node", "before", "after"], body)]
    if moves:
        steps: list[list[Content]] = [
            [
                move["subtree"],
                move["source"],
                "(merged)" if move["merged"] else move["target"],
                percent(move["load"]),
            ]
            for move in moves[:MOST_SHOWN]
        ]
        parts.append(tag("h3", "moves"))
        parts.append(table(["subtree", "from", "to", "load"], steps, texts=(0, 1, 2)))
    lead = "Nothing is to be moved: the load is as even as the plan would make it."
    if moves:
        highest = [percent(max(loads.values())) for loads in (before, after)]
        lead = (
            f"{len(moves)} {'moves bring' if moves[1:] else 'move brings'} the most loaded node from "
            f"{highest[0]} of its CPU to {highest[1]}: hbroker apply plan.yaml."
        )
    note = (
        "CPU of messages alone, over what the node's workers can do, at the rate at which the busier half of "
        "all messages came: idle time counts for nothing. What a node spends without messages does not move."
    )
    return Section("Plan", lead, parts, note)
