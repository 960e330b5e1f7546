"""Tables as files: each is computed once, written, and read back by the following steps.

So the Parquet file of a table is also the checkpoint between two steps: no table is computed twice, none is
kept in memory, and a step reads what a user finds. Small tables are also collected in the driver, for the CSV
file and for the report. They are small by construction: rankings, and windows of nodes.
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

from .data.storage import Storage, below, literally

Rows = list[dict[str, Any]]
"""A small table: each row by column name. Times are datetimes in UTC."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Tables:
    """The tables in a directory."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._directory = directory
        self._storage = Storage(spark)
        self.small: dict[str, Rows] = {}

    def keep(self, name: str, frame: DataFrame, *, batch: int | None = None) -> DataFrame:
        """Writes `NAME.parquet`, replacing an earlier one, and returns what was written.

        `batch`: only this micro-batch's part, replacing that of an earlier attempt.
        """
        address = below(self._directory, f"{name}.parquet", *([] if batch is None else [f"batch={batch}"]))
        frame.write.mode("overwrite").parquet(address)
        return self._spark.read.schema(frame.schema).parquet(literally(address))

    def keep_small(self, name: str, frame: DataFrame, order: Sequence[str]) -> DataFrame:
        """As `keep`, and collects the rows with `collect`."""
        written = self.keep(name, frame)
        self.collect(name, written, order)
        return written

    def collect(self, name: str, written: DataFrame, order: Sequence[str]) -> None:
        """Collects the rows of a table in this order: into `NAME.csv`, and into `small`."""
        rows = collected(written.coalesce(1).sortWithinPartitions(*order))
        self.small[name] = rows
        self._storage.write(below(self._directory, f"{name}.csv"), _csv(written.columns, rows))

    def read(self, name: str) -> DataFrame:
        """A table that was written by `keep`."""
        return self._spark.read.parquet(literally(below(self._directory, f"{name}.parquet")))


def collected(frame: DataFrame) -> Rows:
    """The rows, collected in the driver. (PySpark itself gives times in this process's time zone, without a
    zone.)"""
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
    """CSV of RFC 4180, times in ISO 8601 and UTC, null as an empty field."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in columns])
    return text.getvalue()


def _cell(value: object) -> object:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
