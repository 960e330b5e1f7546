"""Telemetry files as a reader sees them: every file that is not hidden, read by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

TRAFFIC = ("messages_in", "bytes_in", "messages_out", "bytes_out", "whole_in", "whole_out")


def files(directory: Path, kind: str, node: str = "*") -> list[Path]:
    """The files of one kind and one process. Each is complete."""
    found = sorted(directory.glob(f"date=*/node={node}/{kind}-*.parquet"))
    for path in found:
        pq.ParquetFile(path).read()
    return found


def rows(directory: Path, kind: str, node: str = "*") -> list[dict[str, Any]]:
    """The rows of these files, each with its file, ordered by run and file."""
    read = []
    for path in sorted(files(directory, kind, node), key=order):
        read += [{**row, "file": path} for row in pq.ParquetFile(path).read().to_pylist()]
    return read


def order(path: Path) -> tuple[int, int]:
    """(run, number) of a file."""
    _, run, number = path.stem.split("-")
    return int(run), int(number)


def sums(found: Iterable[dict[str, Any]]) -> dict[str, int]:
    """The sums of the traffic columns over these rows."""
    total = Counter(dict.fromkeys(TRAFFIC, 0))
    for row in found:
        total.update({name: row[name] for name in TRAFFIC})
    return dict(total)
