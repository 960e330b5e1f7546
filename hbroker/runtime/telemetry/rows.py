"""The columns of telemetry, and intervals as Arrow tables with these columns.

The columns are the contract between the writers and the readers (docs/telemetry.md). A change of a column
needs another `VERSION`, and a change of that page. A new column goes at the end.

The native core returns its counts in the form of Arrow's buffers, so a thousand topics cost Python no more
than one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from hbroker._native import Load
from hbroker.runtime.telemetry.interval import Facts, Sample

__all__ = ["NODES", "TOPICS", "VERSION", "Identity", "Interval", "node_table", "topic_table"]

VERSION: Final = 1
_METADATA: Final = {"hbroker.telemetry": str(VERSION)}
_INSTANT: Final = pa.timestamp("us", tz="UTC")

_DROP: Final = "drop."
_GAUGES: Final = (
    "workers",
    "sessions",
    "subscriptions",
    "publishers",
    "connections",
    "queued_messages",
    "queued_bytes",
)
_COUNTED: Final = ("messages_in", "messages_out", "datagrams_in", "datagrams_out")


def _column(name: str, type: pa.DataType, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, type, nullable=nullable)


_COMMON: Final = (
    _column("node", pa.string()),
    _column("role", pa.string()),
    _column("run", pa.int64()),
    _column("at", _INSTANT),
    _column("seconds", pa.float64()),
)
_TRAFFIC: Final = tuple(
    _column(name, pa.int64()) for name in ("messages_in", "bytes_in", "messages_out", "bytes_out")
)
_WHOLE: Final = tuple(_column(name, pa.int64()) for name in ("whole_in", "whole_out"))

TOPICS: Final = pa.schema(
    (*_COMMON, _column("topic", pa.string(), nullable=True), *_TRAFFIC, *_WHOLE), metadata=_METADATA
)
"""One row for each interval and topic with traffic."""

NODES: Final = pa.schema(
    (
        *_COMMON,
        _column("address", pa.string()),
        _column("parent", pa.string(), nullable=True),
        _column("subtrees", pa.list_(_column("element", pa.string()))),
        _column("workers", pa.int32()),
        _column("cpu_s", pa.float64()),
        _column("rss_bytes", pa.int64()),
        _column("sessions", pa.int64()),
        _column("subscriptions", pa.int64()),
        _column("publishers", pa.int64()),
        _column("connections", pa.int64()),
        *_TRAFFIC,
        _column("datagrams_in", pa.int64()),
        _column("datagrams_out", pa.int64()),
        _column("queued_messages", pa.int64()),
        _column("queued_bytes", pa.int64()),
        _column("drops", pa.map_(pa.string(), _column("value", pa.int64()))),
        _column("latency", pa.list_(_column("element", pa.int64()))),
        _column("latency_sampled", pa.int32()),
        *_WHOLE,
    ),
    metadata=_METADATA,
)
"""One row for each interval."""


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
    return {
        **asdict(identity),
        **asdict(interval.sample),
        **asdict(facts),
        **{name: load.gauges.get(name, 0) for name in _GAUGES},
        **{name: counted.get(name, 0) for name in _COUNTED},
        "bytes_in": load.bytes_in,
        "bytes_out": load.bytes_out,
        "drops": sorted(drops.items()),
        "latency": load.latency,
        "latency_sampled": load.sampled,
        "whole_in": load.whole_in,
        "whole_out": load.whole_out,
    }
