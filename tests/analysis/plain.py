"""Every table in plain Python, over the same rows: computed by its definition, not in Spark's way."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

Row = dict[str, Any]

COUNTS = ("messages_in", "bytes_in", "messages_out", "bytes_out", "whole_in", "whole_out")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def window_of(at: datetime, seconds: int) -> datetime:
    """The beginning of the window that contains a time."""
    micros = round((at - EPOCH).total_seconds() * 1e6)
    begin = micros // (seconds * 1_000_000) * seconds
    return datetime.fromtimestamp(begin, UTC)


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Groups rows by a key."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)


def load(rows: Iterable[Row]) -> int:
    """The number of handled messages."""
    return sum(row["messages_in"] + row["messages_out"] for row in rows)


def node_load(nodes: Sequence[Row], window_s: int) -> dict[Any, Row]:
    """By role, node, window."""
    by_window = grouped(nodes, lambda r: (r["role"], window_of(r["at"], window_s)))
    return {
        (role, node, window): {
            "intervals": len(rows),
            "load": load(rows),
            "share": ratio(load(rows), load(by_window[role, window])),
            "workers": max(row["workers"] for row in rows),
            "cpu_s": math.fsum(row["cpu_s"] for row in rows),
            "busy": ratio(
                math.fsum(row["cpu_s"] for row in rows),
                math.fsum(row["seconds"] * row["workers"] for row in rows),
            ),
            "measured": sum(sum(row["latency"]) * row["latency_sampled"] for row in rows),
            "dropped": sum(sum(row["drops"].values()) for row in rows),
            **{name: sum(row[name] for row in rows) for name in COUNTS},
            "datagrams_out": sum(row["datagrams_out"] for row in rows),
            "rss_bytes": max(row["rss_bytes"] for row in rows),
            "queued_messages": max(row["queued_messages"] for row in rows),
        }
        for (role, node, window), rows in grouped(
            nodes, lambda r: (r["role"], r["node"], window_of(r["at"], window_s))
        ).items()
    }


def imbalance(loads: Sequence[int]) -> Row:
    """The indices by their textbook definitions: Gini as the mean of all differences."""
    n, total = len(loads), sum(loads)
    if total == 0:
        return dict.fromkeys(("max_over_mean", "variation", "gini", "jain"))
    mean = total / n
    differences = sum(abs(one - other) for one in loads for other in loads)
    return {
        "max_over_mean": max(loads) / mean,
        "variation": math.sqrt(math.fsum((value - mean) ** 2 for value in loads) / n) / mean,
        "gini": differences / (2 * n * n * mean),
        "jain": total**2 / (n * sum(value**2 for value in loads)),
    }


def hot_topics(topics: Sequence[Row], first: int) -> dict[Any, Row]:
    """By role and rank."""
    found: dict[Any, Row] = {}
    for role, of_role in grouped(topics, lambda r: r["role"]).items():
        named = grouped((r for r in of_role if r["topic"] is not None), lambda r: r["topic"])
        ranking = sorted(named, key=lambda topic: (-load(named[topic]), topic))
        for rank, topic in enumerate(ranking[:first], start=1):
            found[role, rank] = {
                "topic": topic,
                **_sums(named[topic]),
                "share": ratio(load(named[topic]), load(of_role)),
                **_nodes(named[topic]),
            }
    return found


def subtrees(topics: Sequence[Row], first: int, deepest: int) -> dict[Any, Row]:
    """By role, depth and rank."""
    found: dict[Any, Row] = {}
    for role, of_role in grouped(topics, lambda r: r["role"]).items():
        named = [row for row in of_role if row["topic"] is not None]
        for depth in range(1, deepest + 1):
            deep = [row for row in named if row["topic"].count("/") + 1 >= depth]
            trees = grouped(deep, lambda r: "/".join(r["topic"].split("/")[:depth]))  # noqa: B023
            ranking = sorted(trees, key=lambda tree: (-load(trees[tree]), tree))
            for rank, tree in enumerate(ranking[:first], start=1):
                found[role, depth, rank] = {
                    "subtree": tree,
                    **_sums(trees[tree]),
                    "share": ratio(load(trees[tree]), load(of_role)),
                    "topics": len({(row["node"], row["topic"]) for row in trees[tree]}),
                    **_nodes(trees[tree]),
                }
    return found


def fan_out(topics: Sequence[Row], edges: Sequence[int]) -> dict[Any, Row]:
    """By role and the bucket's upper edge."""
    found: dict[Any, Row] = {}
    named = grouped((r for r in topics if r["topic"] is not None), lambda r: (r["role"], r["topic"]))
    for (role, _), rows in named.items():
        sums = _sums(rows)
        upper = next((e for e in edges if sums["messages_out"] <= e * sums["messages_in"]), None)
        bucket = found.setdefault((role, upper), {"topics": 0, "messages_in": 0, "messages_out": 0})
        bucket["topics"] += 1
        bucket["messages_in"] += sums["messages_in"]
        bucket["messages_out"] += sums["messages_out"]
    return found


def drops(nodes: Sequence[Row], window_s: int) -> dict[Any, int]:
    """By role, node, window and reason."""
    found: dict[Any, int] = defaultdict(int)
    for row in nodes:
        for reason, count in row["drops"].items():
            if count:
                found[row["role"], row["node"], window_of(row["at"], window_s), reason] += count
    return dict(found)


def percentile(nodes: Sequence[Row], permille: int) -> int | None:
    """The bucket of the percentile, by nearest rank over every single latency. None if nothing was
    measured."""
    every = [
        bucket
        for row in nodes
        for bucket, count in enumerate(row["latency"])
        for _ in range(count * row["latency_sampled"])
    ]
    every.sort()
    return every[math.ceil(len(every) * permille / 1000) - 1] if every else None


def least_squares(rows: Sequence[Row]) -> tuple[float, float, float]:
    """The coefficients base, in, out: normal equations, solved by Cramer's rule."""
    columns = [
        [1.0, row["messages_in"] / row["seconds"], row["messages_out"] / row["seconds"]] for row in rows
    ]
    values = [row["cpu_s"] / row["seconds"] for row in rows]
    matrix = [[math.fsum(c[i] * c[j] for c in columns) for j in range(3)] for i in range(3)]
    right = [math.fsum(c[i] * y for c, y in zip(columns, values, strict=True)) for i in range(3)]
    whole = _determinant(matrix)
    solved = [
        _determinant([[right[i] if j == k else matrix[i][j] for j in range(3)] for i in range(3)]) / whole
        for k in range(3)
    ]
    return solved[0], solved[1], solved[2]


def ratio(part: float, whole: float) -> float | None:
    """The ratio, or None if `whole` is 0."""
    return part / whole if whole else None


def runs(processes: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Groups processes (began, ended) into runs: two processes that overlap are of one run."""
    sets = [[process] for process in processes]
    for one, other in ((a, b) for a in processes for b in processes):
        if one[0] <= other[1] and other[0] <= one[1]:
            together = [found for found in sets if one in found or other in found]
            sets = [found for found in sets if found not in together]
            sets.append(sorted({process for found in together for process in found}))
    return sorted(sets)


def _sums(rows: Sequence[Row]) -> Row:
    return {**{name: sum(row[name] for row in rows) for name in COUNTS}, "load": load(rows)}


def _nodes(rows: Sequence[Row]) -> Row:
    at_nodes = {node: load(at) for node, at in grouped(rows, lambda r: r["node"]).items()}
    return {"nodes": len(at_nodes), "main_node": max(at_nodes, key=lambda node: (at_nodes[node], node))}


def _determinant(m: Sequence[Sequence[float]]) -> float:
    return (
        m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1])
        - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
        + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
    )
