"""Tables as files: each is computed once, written, and read back from there by whatever follows.

So a table's Parquet is also the checkpoint between two steps: nothing is computed twice, nothing is held in
memory, and what a step reads is what a user finds. The small ones come to the driver as well, for the CSV
beside it and for the report; they are small by construction (rankings, windows of nodes), never by luck.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from .storage import Storage, below, literally

Rows = list[dict[str, Any]]
"""A small table: each row by the names of its columns. Times are datetimes in UTC."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Tables:
    """The tables in a directory."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._directory = directory
        self._storage = Storage(spark)
        self.small: dict[str, Rows] = {}

    def keep(self, name: str, frame: DataFrame, *, batch: int | None = None) -> DataFrame:
        """Writes `NAME.parquet`, in the place of an earlier one, and returns what was written. `batch`: that
        part of it alone, in the place of what an earlier try has left of it."""
        address = below(self._directory, f"{name}.parquet", *([] if batch is None else [f"batch={batch}"]))
        frame.write.mode("overwrite").parquet(address)
        return self._spark.read.schema(frame.schema).parquet(literally(address))

    def keep_small(self, name: str, frame: DataFrame, order: Sequence[str]) -> DataFrame:
        """The same, and its rows as `collect` has them."""
        written = self.keep(name, frame)
        self.collect(name, written, order)
        return written

    def collect(self, name: str, written: DataFrame, order: Sequence[str]) -> None:
        """The rows of a table in this order: as `NAME.csv`, and in `small`."""
        rows = collected(written.coalesce(1).sortWithinPartitions(*order))
        self.small[name] = rows
        self._storage.write(below(self._directory, f"{name}.csv"), _csv(written.columns, rows))

    def read(self, name: str) -> DataFrame:
        """A table that was kept."""
        return self._spark.read.parquet(literally(below(self._directory, f"{name}.parquet")))


def collected(frame: DataFrame) -> Rows:
    """The rows, in the driver. (PySpark itself gives times in this process's time zone, unmarked.)"""
    times = [field.name for field in frame.schema if isinstance(field.dataType, TimestampType)]
    rows = [
        row.asDict() for row in frame.withColumns({name: F.unix_micros(name) for name in times}).collect()
    ]
    for row in rows:
        for name in times:
            if row[name] is not None:
                row[name] = _EPOCH + timedelta(microseconds=row[name])
    return rows


def _csv(columns: Sequence[str], rows: Rows) -> str:
    """RFC 4180, times as ISO 8601 in UTC, null as nothing."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in columns])
    return text.getvalue()


def _cell(value: object) -> object:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
