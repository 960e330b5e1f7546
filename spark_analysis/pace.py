"""The pace of a network in use: what traffic a plan is for.

A mean over all time says how much there was: an idle night weighs in it as much as a busy hour, and a
network that stood still before and after a test seems to have been half as busy. But what a node has to bear
is what comes while it comes. So the pace is a median by message: half of all messages were handled in spans
of time in which the network handled that many a second, or more. In an idle span hardly any are, so it counts
for nothing. (Where nearly half of them came in no time at all, the mean may be more, and counts.)

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
    at most those that they told of. 0: they handled nothing.

    `node_load`: of `loads.node_load`, whose windows are told apart by `SPAN_S`, or added up to it.
    """
    loads: Counter[int] = Counter()
    told: dict[int, Counter[str]] = defaultdict(Counter)
    for row in node_load:
        if row["role"] == NODE and row["seconds"] > 0:
            span = int(row[WINDOW].timestamp() // SPAN_S)
            loads[span] += row["load"]
            told[span][row["node"]] += row["seconds"]
    seconds = {span: max(nodes.values()) for span, nodes in told.items()}
    rates = {span: loads[span] / seconds[span] for span in loads}
    total, handled = sum(loads.values()), 0
    for span in sorted(rates, key=lambda span: rates[span], reverse=True):
        handled += loads[span]
        if handled and 2 * handled >= total:
            return min(total / rates[span], sum(seconds.values()))
    return 0.0
