"""The columns of telemetry: the contract between its writers and its readers (docs/telemetry.md).

A change of a column needs another `VERSION`, and a change of that page. A new column goes at the end.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = ["BUCKETS", "NODES", "TOPICS", "VERSION"]

VERSION: Final = 1
BUCKETS: Final = 96
"""The number of buckets of a latency histogram. Bucket i counts from 2^(i/4) to 2^((i+1)/4) microseconds."""

_METADATA: Final = {"hbroker.telemetry": str(VERSION)}
_INSTANT: Final = pa.timestamp("us", tz="UTC")


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
