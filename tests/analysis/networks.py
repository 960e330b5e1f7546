"""Rows of small networks, made by hypothesis: everything that the contract allows, including unusual
topics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from tests.analysis import plain
from tests.analysis.files import Row

BEGIN = datetime(2026, 3, 1, 23, 59, 40, tzinfo=UTC)
"""Shortly before midnight, so that some intervals lie on the next day."""

TOPICS = [
    None,
    "home",
    "home/kitchen/oven/temperature",
    "home/kitchen/oven",
    "home/kitchen/lamp",
    "home/garden",
    "/leading",
    "trailing/",
    "//",
    "a/b/c/d/e/f/g/h/i/j",
    "größe/温度",
    "odd\"name,<b>&'\n",
]
COUNTS = st.integers(0, 50) | st.integers(0, 10**9)


@dataclass(frozen=True)
class Network:
    """The rows that the processes of a network wrote."""

    topics: list[Row]
    nodes: list[Row]


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """One to three owners and up to two gateways, each with one or two runs."""
    owners = draw(st.sampled_from([["root"], ["root", "n1"], ["root", "n1", "n 2"]]))
    gateways = draw(st.sampled_from([[], ["gw"], ["gw", "root"]]))
    processes = [*((name, "node") for name in owners), *((name, "gateway") for name in gateways)]
    topics: list[Row] = []
    nodes: list[Row] = []
    for index, (name, role) in enumerate(processes):
        for interval in draw(st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True)):
            common = {
                "node": name,
                "role": role,
                "run": 1 + index + 10 * (interval > 20),
                "at": BEGIN + timedelta(seconds=interval, microseconds=draw(st.integers(0, 999_999))),
                "seconds": draw(st.floats(0.5, 1.5)),
            }
            rows = draw(st.lists(_topic_rows(common), max_size=6, unique_by=lambda row: row["topic"]))
            topics.extend(rows)
            nodes.append(draw(_node_row(common, rows)))
    return Network(topics, nodes)


def _topic_rows(common: Row) -> st.SearchStrategy[Row]:
    counts = {name: COUNTS for name in plain.COUNTS}
    return st.fixed_dictionaries(
        {
            **{name: st.just(value) for name, value in common.items()},
            "topic": st.sampled_from(TOPICS),
            **counts,
        }
    )


def _node_row(common: Row, topics: list[Row]) -> st.SearchStrategy[Row]:
    sums = {name: sum(row[name] for row in topics) for name in plain.COUNTS}
    some = st.integers(0, 10**6)
    return st.fixed_dictionaries(
        {
            **{name: st.just(value) for name, value in {**common, **sums}.items()},
            "address": st.just("127.0.0.1:7700"),
            "parent": st.sampled_from([None, "root"]),
            "subtrees": st.lists(st.sampled_from(["home", "home/kitchen"]), max_size=2),
            "workers": st.integers(1, 4),
            "cpu_s": st.floats(0, 2),
            "drops": st.dictionaries(st.sampled_from(["queue_full", "expired"]), st.integers(0, 99)),
            "latency": st.dictionaries(st.integers(0, 95), st.integers(1, 30), max_size=5).map(_histogram),
            "latency_sampled": st.integers(1, 3),
            **{
                name: some
                for name in (
                    "rss_bytes",
                    "sessions",
                    "subscriptions",
                    "publishers",
                    "connections",
                    "datagrams_in",
                    "datagrams_out",
                    "queued_messages",
                    "queued_bytes",
                )
            },
        }
    )


def _histogram(counts: dict[int, int]) -> list[int]:
    return [counts.get(bucket, 0) for bucket in range(96)]
