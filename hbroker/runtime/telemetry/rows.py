"""Turns intervals into Arrow tables.

The native core returns its counts in the form of Arrow's buffers, so a thousand topics cost Python no more
than one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from hbroker._native import Load
from hbroker.runtime.telemetry.interval import Facts, Sample
from hbroker.runtime.telemetry.schema import NODES, TOPICS

__all__ = ["Identity", "Interval", "node_table", "topic_table"]

_DROP: Final = "drop."


@dataclass(frozen=True, slots=True)
class Identity:
    """The process to which the rows belong. `role`: "node" or "gateway". `run`: when the run began, in
    microseconds since the Unix epoch."""

    node: str
    role: str
    run: int


@dataclass(frozen=True, slots=True)
class Interval:
    """One interval and its counts. `counted`: by how much each counter of the core rose. `lost`: the number
    of intervals before this one that could not be written."""

    sample: Sample
    facts: Facts
    load: Load
    counted: Mapping[str, int]
    lost: int = 0


def topic_table(identity: Identity, intervals: Sequence[Interval]) -> pa.Table:
    """A table with one row for each interval and topic."""
    batches = [batch for interval in intervals for batch in _topic_batches(identity, interval)]
    return pa.Table.from_batches(batches, TOPICS)


def node_table(identity: Identity, intervals: Sequence[Interval]) -> pa.Table:
    """A table with one row for each interval."""
    return pa.Table.from_pylist([_node_row(identity, interval) for interval in intervals], NODES)


def _topic_batches(identity: Identity, interval: Interval) -> list[pa.RecordBatch]:
    load = interval.load
    count = len(load.offsets) // 4 - 1
    named: list[pa.Array] = [
        pa.Array.from_buffers(
            pa.string(), count, [None, pa.py_buffer(load.offsets), pa.py_buffer(load.names)]
        ),
        *(pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(column)]) for column in load.numbers),
    ]
    batches = [_batch(identity, interval, named)] if count else []
    if any(load.rest):
        rest = [pa.nulls(1, pa.string()), *(pa.array([number], pa.int64()) for number in load.rest)]
        batches.append(_batch(identity, interval, rest))
    return batches


def _batch(identity: Identity, interval: Interval, columns: list[pa.Array]) -> pa.RecordBatch:
    values = (identity.node, identity.role, identity.run, interval.sample.at, interval.sample.seconds)
    count = len(columns[0])
    common = [
        pa.repeat(pa.scalar(value, field.type), count) for field, value in zip(TOPICS, values, strict=False)
    ]
    return pa.RecordBatch.from_arrays([*common, *columns], schema=TOPICS)


def _node_row(identity: Identity, interval: Interval) -> dict[str, Any]:
    load, facts, counted = interval.load, interval.facts, interval.counted
    drops = {name.removeprefix(_DROP): n for name, n in counted.items() if name.startswith(_DROP) and n}
    if interval.lost:
        drops["telemetry"] = interval.lost
    gauges = ("workers", "sessions", "subscriptions", "publishers", "connections")
    return {
        "node": identity.node,
        "role": identity.role,
        "run": identity.run,
        "at": interval.sample.at,
        "seconds": interval.sample.seconds,
        "address": facts.address,
        "parent": facts.parent,
        "subtrees": list(facts.subtrees),
        "cpu_s": interval.sample.cpu_s,
        "rss_bytes": interval.sample.rss_bytes,
        **{name: load.gauges.get(name, 0) for name in gauges},
        "messages_in": counted.get("messages_in", 0),
        "bytes_in": load.bytes_in,
        "messages_out": counted.get("messages_out", 0),
        "bytes_out": load.bytes_out,
        "datagrams_in": counted.get("datagrams_in", 0),
        "datagrams_out": counted.get("datagrams_out", 0),
        "queued_messages": load.gauges["queued_messages"],
        "queued_bytes": load.gauges["queued_bytes"],
        "drops": sorted(drops.items()),
        "latency": load.latency,
        "latency_sampled": load.sampled,
        "whole_in": load.whole_in,
        "whole_out": load.whole_out,
    }
