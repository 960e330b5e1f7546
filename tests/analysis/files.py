"""Telemetry files as a node writes them, made with pyarrow, which the analysis itself does not use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]

_TIME = pa.timestamp("us", tz="UTC")
_COMMON: Final = [
    ("node", pa.string()),
    ("role", pa.string()),
    ("run", pa.int64()),
    ("at", _TIME),
    ("seconds", pa.float64()),
]
_COUNTS: Final = [(name, pa.int64()) for name in ("messages_in", "bytes_in", "messages_out", "bytes_out")]
_WHOLE: Final = [("whole_in", pa.int64()), ("whole_out", pa.int64())]
METADATA: Final = {"hbroker.telemetry": "1"}

SCHEMAS: Final = {
    "topics": pa.schema([*_COMMON, ("topic", pa.string()), *_COUNTS, *_WHOLE], metadata=METADATA),
    "nodes": pa.schema(
        [
            *_COMMON,
            ("address", pa.string()),
            ("parent", pa.string()),
            ("subtrees", pa.list_(pa.string())),
            ("workers", pa.int32()),
            ("cpu_s", pa.float64()),
            ("rss_bytes", pa.int64()),
            ("sessions", pa.int64()),
            ("subscriptions", pa.int64()),
            ("publishers", pa.int64()),
            ("connections", pa.int64()),
            *_COUNTS,
            ("datagrams_in", pa.int64()),
            ("datagrams_out", pa.int64()),
            ("queued_messages", pa.int64()),
            ("queued_bytes", pa.int64()),
            ("drops", pa.map_(pa.string(), pa.int64())),
            ("latency", pa.list_(pa.int64())),
            ("latency_sampled", pa.int32()),
            *_WHOLE,
        ],
        metadata=METADATA,
    ),
}


def write(directory: Path, kind: str, rows: Sequence[Row], sequence: int = 0) -> Path:
    """Writes one file, under the name of the contract. All rows are of one node."""
    path = place(directory, kind, rows[0]["node"], rows[0]["at"], rows[0]["run"], sequence)
    table = pa.Table.from_pylist([_as_written(row) for row in rows], schema=SCHEMAS[kind])
    pq.write_table(table, path, compression="zstd")
    return path


def place(directory: Path, kind: str, node: str, at: datetime, run: int, sequence: int) -> Path:
    """The path of a file. Makes its folder."""
    folder = directory / f"date={at:%Y-%m-%d}" / f"node={node}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{kind}-{run}-{sequence}.parquet"


def write_all(directory: Path, kind: str, rows: Sequence[Row]) -> None:
    """Writes all rows, a file for each node and run."""
    for node, run in sorted({(row["node"], row["run"]) for row in rows}):
        write(directory, kind, [row for row in rows if (row["node"], row["run"]) == (node, run)])


def damage(path: Path, column: str) -> None:
    """Damages the pages of a column. The footer stays valid."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunks = [group.column(i) for i in range(group.num_columns)]
    (chunk,) = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] == column]
    at = int(chunk.dictionary_page_offset or chunk.data_page_offset)
    content = bytearray(path.read_bytes())
    content[at : at + 60] = bytes(60)
    path.write_bytes(content)


def _as_written(row: Row) -> Row:
    return {name: list(value.items()) if isinstance(value, dict) else value for name, value in row.items()}
