"""The telemetry files as this package reads them: the contract with their writers.

A file is `DIR/date=YYYY-MM-DD/node=NAME/KIND-STARTEDAT-SEQUENCE.parquet`. KIND is `topics` (a row for each
interval and topic) or `nodes` (a row for each interval). A file appears whole, by a rename from a name that
begins with a dot. Its metadata have `VERSION_KEY`.

A latency histogram has `BUCKETS` counts. Bucket i counts latencies from `2^(i/4)` to below `2^((i+1)/4)`
microseconds; the first also all below, and the last all above.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

VERSION_KEY: Final = "hbroker.telemetry"
VERSION: Final = "1"

NODE: Final = "node"
GATEWAY: Final = "gateway"

BUCKETS: Final = 96
BUCKETS_PER_OCTAVE: Final = 4

FILE_NAME: Final = re.compile(r"(?P<kind>topics|nodes)-(?P<started_at>\d+)-(?P<sequence>\d+)\.parquet")


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


TOPICS: Final = _struct(
    node=StringType(),
    role=StringType(),
    run=LongType(),
    at=TimestampType(),
    seconds=DoubleType(),
    topic=StringType(),
    messages_in=LongType(),
    bytes_in=LongType(),
    messages_out=LongType(),
    bytes_out=LongType(),
    whole_in=LongType(),
    whole_out=LongType(),
)
"""One row for each interval and topic with traffic. `topic` null: all topics beyond the writer's bound."""

NODES: Final = _struct(
    node=StringType(),
    role=StringType(),
    run=LongType(),
    at=TimestampType(),
    seconds=DoubleType(),
    address=StringType(),
    parent=StringType(),
    subtrees=ArrayType(StringType()),
    workers=IntegerType(),
    cpu_s=DoubleType(),
    rss_bytes=LongType(),
    sessions=LongType(),
    subscriptions=LongType(),
    publishers=LongType(),
    connections=LongType(),
    messages_in=LongType(),
    bytes_in=LongType(),
    messages_out=LongType(),
    bytes_out=LongType(),
    datagrams_in=LongType(),
    datagrams_out=LongType(),
    queued_messages=LongType(),
    queued_bytes=LongType(),
    drops=MapType(StringType(), LongType()),
    latency=ArrayType(LongType()),
    latency_sampled=IntegerType(),
    whole_in=LongType(),
    whole_out=LongType(),
)
"""One row for each interval, of the whole process."""

SCHEMAS: Final = {"topics": TOPICS, "nodes": NODES}

WHOLE: Final = {"whole_in": "messages_in", "whole_out": "messages_out"}
"""Columns that count a large message once, and the columns that count each of its fragments.

Files of earlier versions do not have the former; the latter replace them.
"""
