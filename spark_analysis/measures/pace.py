"""The pace of a network in use: the rate of traffic for which a plan is made.

In a mean over all time an idle night has the weight of a busy hour, and a network that was idle before and
after a test seems half as busy. But a node must bear the rate at which messages come. So the pace is the rate
at which the busier half of all messages was handled. A span of time with hardly any messages has none of that
half, so it does not count.

A span is long enough to even out what queues even out, such as meters that all publish at one moment. It is
as long as the measurement of `hbroker apply`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from ..data.schema import NODE
from ..tables import Rows
from .loads import WINDOW

SPAN_S: Final = 10


def seconds_at_pace(node_load: Rows) -> float:
    """Seconds that the owners would have needed at the network's pace for all messages they handled.

    That is twice the time that the busier half took. 0: they handled none. `node_load`: of `loads.node_load`,
    whose windows are divided or combined into spans of `SPAN_S`.
    """
    loads: dict[int, Counter[str]] = defaultdict(Counter)
    reported: dict[int, Counter[str]] = defaultdict(Counter)
    for row in node_load:
        if row["role"] == NODE and row["seconds"] > 0:
            span = int(row[WINDOW].timestamp() // SPAN_S)
            loads[span][row["node"]] += row["load"]
            reported[span][row["node"]] += row["seconds"]
    # Intervals that begin in a span have different lengths at different nodes: so each node has its own rate.
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
