"""Which files are telemetry, and their rows.

No file in the directory can end an analysis. Every file is examined before Spark reads it. A file that is not
telemetry of this version is skipped, with its name and the reason:

- by its name: it is neither `topics-…` nor `nodes-…`;
- by its footer: it is truncated or malformed, has no rows, is of another version, or lacks a column.

Footers are read in the driver's Java process by Spark's own reader, from threads, with three calls for each
file. The driver limits that to about a thousand files a second on two cores, and needs memory for one line a
file. It works at any address that Spark reads, and no executor needs Python or pyarrow. (Spark's `binaryFile`
would read every byte of every file for its last kilobyte, and rows that Spark reads from Parquet do not have
their file's metadata.)

A footer does not show whether the pages before it are intact. Spark skips the rest of a file that it cannot
decode (`ignoreCorruptFiles`), so fewer rows are read than the footers say. `damaged` then finds these files,
and the analysis goes on without them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructField, StructType

from .schema import FILE_NAME, SCHEMAS, VERSION, VERSION_KEY, WHOLE
from .storage import Storage, literally

DAMAGED: Final = "damaged: its footer is whole, its rows are not"
"""The reason for a skipped file of which fewer rows can be read than its footer says."""

_THREADS: Final = 8
_LONGEST_REASON: Final = 200


@dataclass(frozen=True)
class Skipped:
    """A file that was not read, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True)
class Usable:
    """A telemetry file that is valid according to its footer."""

    path: str
    kind: str
    rows: int
    columns: str
    """The columns according to the footer. Equal texts mean equal columns."""
    within: int | None = None
    """The number of its rows within the bounds of the analysis; None: all."""


@dataclass(frozen=True)
class Found:
    """A snapshot of a directory: files that appear later are not read."""

    directory: str
    usable: tuple[Usable, ...]
    skipped: tuple[Skipped, ...]
    since: int | None = None
    until: int | None = None
    """The bounds of the analysis: from `since` on and before `until`, in microseconds since the epoch; None:
    no such bound."""

    def rows(self, kind: str) -> int:
        """The number of rows of a kind to read."""
        counts = (
            file.rows if file.within is None else file.within for file in self.usable if file.kind == kind
        )
        return sum(counts)

    def holds(self) -> Column:
        """Whether a row lies within the bounds."""
        at = F.unix_micros("at")
        since = F.lit(True) if self.since is None else at >= self.since
        return since if self.until is None else since & (at < self.until)

    def without(self, paths: Collection[str], reason: str) -> Found:
        """The same without these files."""
        gone = tuple(Skipped(file.path, reason) for file in self.usable if file.path in paths)
        kept = tuple(file for file in self.usable if file.path not in paths)
        return replace(self, usable=kept, skipped=(*self.skipped, *gone))


@dataclass(frozen=True)
class Inside:
    """The content of a file: its rows, its rows within the bounds, the begin of its last interval, and when
    it was written, both in microseconds since the epoch."""

    rows: int
    within: int
    last: int
    written: int


def find(spark: SparkSession, directory: str) -> Found:
    """Examines every file below the directory. Raises AnalysisError if there is no such directory."""
    return look_at(spark, directory, Storage(spark).files(directory))


def look_at(spark: SparkSession, directory: str, paths: Iterable[str]) -> Found:
    """Examines these files below the directory."""
    storage = Storage(spark)
    with ThreadPoolExecutor(_THREADS) as pool:
        looked_at = list(pool.map(lambda path: _look_at(storage, path), paths))
    skipped = [file for file in looked_at if isinstance(file, Skipped)]
    usable, foreign = _of_our_columns(spark, [file for file in looked_at if isinstance(file, Usable)])
    return Found(directory, tuple(usable), tuple(sorted([*skipped, *foreign], key=lambda file: file.path)))


def read(spark: SparkSession, found: Found, kind: str) -> DataFrame:
    """The rows of all usable files of a kind, with the columns of its schema.

    Rows of a file that was removed in the meantime are missing.
    """
    there = _rows(spark, found, kind)
    if there is not None:
        is_bounded = found.since is not None or found.until is not None
        rows = there.where(found.holds()) if is_bounded else there
        return rows.withColumns({name: F.coalesce(name, parts) for name, parts in WHOLE.items()})
    return spark.range(0).select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in SCHEMAS[kind]])


def damaged(spark: SparkSession, found: Found, kind: str) -> set[str]:
    """The files of which fewer rows can be read than their footers say. Call it only if the sum does not
    agree."""
    inside = look_through(spark, found, kind)
    return {
        file.path
        for file in found.usable
        if file.kind == kind and (file.path not in inside or inside[file.path].rows != file.rows)
    }


def look_through(spark: SparkSession, found: Found, kind: str) -> dict[str, Inside]:
    """The content of each usable file of a kind of which at least one row can be read.

    Reads every column of every row.
    """
    frame = _rows(spark, found, kind)
    if frame is None:
        return {}
    # For a count alone, Spark would read no column.
    whole = F.hash(*[_hashable(field) for field in frame.schema])
    last, written = F.unix_micros(F.max("at")), F.unix_micros(F.max("_metadata.file_modification_time"))
    files = frame.groupBy(F.col("_metadata.file_path").alias("path")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(found.holds()).alias("within"),
        last.alias("last"),
        written.alias("written"),
        F.max(whole),
    )
    names = {_plain(file.path): file.path for file in found.usable}
    return {
        names[_plain(unquote(row["path"]))]: Inside(row["rows"], row["within"], row["last"], row["written"])
        for row in files.collect()
    }


def _rows(spark: SparkSession, found: Found, kind: str) -> DataFrame | None:
    """The rows of all usable files of a kind; None: there is no file."""
    paths = [file.path for file in found.usable if file.kind == kind]
    reader = spark.read.schema(SCHEMAS[kind]).options(ignoreCorruptFiles=True, ignoreMissingFiles=True)
    while paths:
        try:
            return reader.parquet(*map(literally, paths))
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            storage = Storage(spark)
            paths = [path for path in paths if storage.exists(path)]
    return None


def _look_at(storage: Storage, path: str) -> Usable | Skipped:
    name = FILE_NAME.fullmatch(path.rpartition("/")[2])
    if name is None:
        return Skipped(path, "foreign: its name is neither topics-…-….parquet nor nodes-…-….parquet")
    try:
        footer = json.loads(storage.footer(path))
    except Py4JJavaError as error:
        return Skipped(path, f"malformed or truncated: {_first_line(error)}")
    metadata = footer["fileMetaData"]
    version = (metadata.get("keyValueMetaData") or {}).get(VERSION_KEY)
    if version is None:
        return Skipped(path, f"foreign: its metadata have no {VERSION_KEY}")
    if version != VERSION:
        return Skipped(path, f"of version {version}; this reads version {VERSION}")
    rows = sum(block["rowCount"] for block in footer["blocks"])
    if rows == 0:
        return Skipped(path, "empty: no rows")
    return Usable(path, name["kind"], rows, json.dumps(metadata["schema"]["fields"]))


def _of_our_columns(spark: SparkSession, files: Iterable[Usable]) -> tuple[list[Usable], list[Skipped]]:
    """Asks Spark for the columns of one file of each distinct footer: these are few, whatever the number of
    files."""
    usable: list[Usable] = []
    foreign: list[Skipped] = []
    judged: dict[tuple[str, str], str | None] = {}
    for file in files:
        key = (file.kind, file.columns)
        if key not in judged:
            judged[key] = _judge(spark, file)
        if (wrong := judged[key]) is None:
            usable.append(replace(file, columns=""))
        else:
            foreign.append(Skipped(file.path, f"foreign: {wrong}"))
    return usable, foreign


def _judge(spark: SparkSession, file: Usable) -> str | None:
    """What is wrong with its columns; None: nothing."""
    try:
        theirs = spark.read.parquet(literally(file.path)).schema
    except PySparkException:
        return "its columns are not of Spark's types"
    return _difference(SCHEMAS[file.kind], theirs)


def _difference(ours: StructType, theirs: StructType) -> str | None:
    """A column that is missing or of another type; None: there is none.

    Nullability, additional columns, and missing columns that were added in later versions make no difference.
    """
    found = {field.name: field.dataType for field in theirs}
    for field in ours:
        if field.name not in found:
            if field.name in WHOLE:
                continue
            return f"it has no column {field.name}"
        wanted, there = field.dataType.simpleString(), found[field.name].simpleString()
        if wanted != there:
            return f"column {field.name} is {there}, not {wanted}"
    return None


def _hashable(field: StructField) -> Column:
    """A column that Spark can hash: it hashes no maps."""
    return F.to_json(field.name) if isinstance(field.dataType, MapType) else F.col(field.name)


def _plain(path: str) -> str:
    """One form of a path: `file:///a` and `file:/a` are the same file."""
    scheme, _, rest = path.partition(":")
    return f"{scheme}:/{rest.lstrip('/')}" if scheme == "file" else path


def _first_line(error: Py4JJavaError) -> str:
    java: Any = error.java_exception
    message = str(java.getMessage() or java.toString()).splitlines()[0]
    return message[:_LONGEST_REASON]
