"""The topics with the most messages in the last seconds: what a node says of itself on
`$SYS/nodes/<name>/topics`.

Of each interval the hottest topics are kept, for the last `WINDOW` intervals, and added up. A topic that is
among the hottest of some intervals only is counted in those alone: then its numbers are too low, but never
too high.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hbroker._native import Load

__all__ = ["MOST_TOPICS", "WINDOW", "HottestTopics"]

MOST_TOPICS: Final = 20
"""Topics that a node says."""
WINDOW: Final = 10
"""Intervals that are added up."""
_OF_AN_INTERVAL: Final = 100
_LONGEST: Final = 256
"""Bytes of a topic name. Longer ones are counted with the other topics."""
_COUNTS: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out")


@dataclass(frozen=True, slots=True)
class _Interval:
    """One interval: its length, the counts of its hottest topics, and of all topics together."""

    seconds: float
    hottest: dict[str, tuple[int, ...]]
    total: tuple[int, ...]


class HottestTopics:
    """The hottest topics of one process. Each interval is added in one thread; others may read meanwhile."""

    def __init__(self) -> None:
        self._intervals: deque[_Interval] = deque(maxlen=WINDOW)
        self._described: dict[str, Any] = {"seconds": 0.0, "topics": [], "others": dict.fromkeys(_COUNTS, 0)}

    def add(self, load: Load, seconds: float) -> None:
        """Adds an interval."""
        total = (load.whole_in, load.bytes_in, load.whole_out, load.bytes_out)
        self._intervals.append(_Interval(seconds, _hottest(load), total))
        self._described = self._sum()

    def describe(self) -> dict[str, Any]:
        """`seconds`: over how many the counts are. `topics`: the hottest topics, the hottest first: `topic`,
        `messages_in`, `bytes_in`, `messages_out`, `bytes_out`. `others`: the same of all other topics
        together."""
        return self._described

    def _sum(self) -> dict[str, Any]:
        sums: dict[str, list[int]] = {}
        total = [0] * len(_COUNTS)
        for interval in list(self._intervals):
            total = [before + each for before, each in zip(total, interval.total, strict=True)]
            for topic, counts in interval.hottest.items():
                before = sums.get(topic, [0] * len(_COUNTS))
                sums[topic] = [known + each for known, each in zip(before, counts, strict=True)]
        hottest = sorted(sums.items(), key=lambda item: (-item[1][0] - item[1][2], item[0]))[:MOST_TOPICS]
        named = [sum(counts[column] for _, counts in hottest) for column in range(len(_COUNTS))]
        others = [max(all_of - each, 0) for all_of, each in zip(total, named, strict=True)]
        return {
            "seconds": round(sum(interval.seconds for interval in self._intervals), 3),
            "topics": [
                {"topic": topic, **dict(zip(_COUNTS, counts, strict=True))} for topic, counts in hottest
            ],
            "others": dict(zip(_COUNTS, others, strict=True)),
        }


def _hottest(load: Load) -> dict[str, tuple[int, ...]]:
    """The counts of the hottest topics of an interval. A large message counts once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(load.offsets) // 4 - 1
    if count < 1:
        return {}
    buffers = [None, pa.py_buffer(load.offsets), pa.py_buffer(load.names)]
    names = pa.Array.from_buffers(pa.string(), count, buffers)
    _, bytes_in, _, bytes_out, messages_in, messages_out = (
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(column)]) for column in load.numbers
    )
    table = pa.table(
        [names, messages_in, bytes_in, messages_out, bytes_out, pc.add(messages_in, messages_out)],
        names=["topic", *_COUNTS, "messages"],
    )
    if count > _OF_AN_INTERVAL:
        rows = pc.select_k_unstable(table, _OF_AN_INTERVAL, [("messages", "descending")])
        table = table.take(rows)
    columns = [table.column(name).to_pylist() for name in ("topic", *_COUNTS)]
    rows = zip(*columns, strict=True)
    return {topic: tuple(counts) for topic, *counts in rows if len(topic.encode()) <= _LONGEST}
