"""The pace of a network in use: what traffic a plan is for.

A mean over all time says how much there was: an idle night weighs in it as much as a busy hour, and a
network that stood still before and after a test seems to have been half as busy. But what a node has to bear
is what comes while it comes. So the pace is the rate at which the busier half of all messages was handled: in
a span of time in which hardly any were, none of that half were, so it counts for nothing.

A span is long enough to even out what queues even out, such as meters that all speak at one moment. It is as
long as `hbroker apply` measures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from .loads import WINDOW
from .schema import NODE
from .tables import Rows

SPAN_S: Final = 10


def seconds_at_pace(node_load: Rows) -> float:
    """For how many seconds the owners would have had to go on at the network's pace to handle what they did:
    twice as long as the busier half of it took. 0: they handled nothing.

    `node_load`: of `loads.node_load`, whose windows are told apart by `SPAN_S`, or added up to it.
    """
    loads: dict[int, Counter[str]] = defaultdict(Counter)
    reported: dict[int, Counter[str]] = defaultdict(Counter)
    for row in node_load:
        if row["role"] == NODE and row["seconds"] > 0:
            span = int(row[WINDOW].timestamp() // SPAN_S)
            loads[span][row["node"]] += row["load"]
            reported[span][row["node"]] += row["seconds"]
    # The intervals that begin in a span are not of equal length at all nodes: each has a rate of its own.
    rates = {
        span: sum(load / reported[span][node] for node, load in nodes.items())
        for span, nodes in loads.items()
    }
    left = sum(nodes.total() for nodes in loads.values()) / 2
    seconds = 0.0
    for span in sorted(rates, key=lambda span: rates[span], reverse=True):
        if left > 0:
            taken = min(loads[span].total(), left)
            seconds += taken / rates[span]
            left -= taken
    return 2 * seconds
