"""Which files are telemetry, and their rows.

Nothing that lies in the directory ends an analysis. Every file is looked at before Spark reads it, and one
that is no telemetry of this version is skipped, with its name and the reason:

- by its name, what is neither `topics-…` nor `nodes-…`;
- by its footer, what is truncated or malformed, has no rows, is of another version, or lacks a column.

Footers are read in the driver's Java process, by the reader that Spark itself uses, from threads, with three
calls for each file. That is bounded by the driver: about a thousand files a second on two cores, and memory
for a line a file. It works at any address that Spark reads, and no executor needs Python or pyarrow.
(Spark's `binaryFile` would read every byte of every file for its last kilobyte, and rows that Spark reads
from Parquet show nothing of their file's metadata.)

What a footer cannot tell is whether the pages before it are whole. Spark skips the rest of a file that it
cannot decode (`ignoreCorruptFiles`), so fewer rows are read than the footers promise: `damaged` then finds
the files, and the analysis goes on without them.
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
"""Why a file is skipped of which fewer rows can be read than it has."""

_THREADS: Final = 8
_LONGEST_REASON: Final = 200


@dataclass(frozen=True)
class Skipped:
    """A file that was not read, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Usable:
    """A file of telemetry, whole as far as its footer tells."""

    path: str
    kind: str
    rows: int
    columns: str
    """What the footer says of its columns. Equal text, equal columns."""
    within: int | None = None
    """How many of its rows lie between the bounds of what is analysed; None: all."""


@dataclass(frozen=True)
class Found:
    """A snapshot of a directory: what appears in it later is not read."""

    directory: str
    usable: tuple[Usable, ...]
    skipped: tuple[Skipped, ...]
    since: int | None = None
    until: int | None = None
    """What is analysed begins from the one on and before the other, in microseconds since the epoch; None:
    without such a bound."""

    def rows(self, kind: str) -> int:
        """How many rows there are to be read."""
        counts = (
            file.rows if file.within is None else file.within for file in self.usable if file.kind == kind
        )
        return sum(counts)

    def holds(self) -> Column:
        """Whether a row lies between the bounds."""
        at = F.unix_micros("at")
        since = F.lit(True) if self.since is None else at >= self.since
        return since if self.until is None else since & (at < self.until)

    def without(self, paths: Collection[str], reason: str) -> Found:
        """The same, less these files."""
        gone = tuple(Skipped(file.path, reason) for file in self.usable if file.path in paths)
        kept = tuple(file for file in self.usable if file.path not in paths)
        return replace(self, usable=kept, skipped=(*self.skipped, *gone))


@dataclass(frozen=True)
class Inside:
    """What a file holds: how many rows, and how many of them between the bounds; the begin of its last
    interval, and when it was written, both in microseconds since the epoch."""

    rows: int
    within: int
    last: int
    written: int


def find(spark: SparkSession, directory: str) -> Found:
    """Looks at every file below the directory. Raises AnalysisError where there is no such directory."""
    return look_at(spark, directory, Storage(spark).files(directory))


def look_at(spark: SparkSession, directory: str, paths: Iterable[str]) -> Found:
    """Looks at these files, which lie below the directory."""
    storage = Storage(spark)
    with ThreadPoolExecutor(_THREADS) as pool:
        looked_at = list(pool.map(lambda path: _look_at(storage, path), paths))
    skipped = [file for file in looked_at if isinstance(file, Skipped)]
    usable, foreign = _of_our_columns(spark, [file for file in looked_at if isinstance(file, Usable)])
    return Found(directory, tuple(usable), tuple(sorted([*skipped, *foreign], key=lambda file: file.path)))


def read(spark: SparkSession, found: Found, kind: str) -> DataFrame:
    """The rows of all usable files of a kind, with the columns of its schema. (Those of a file that was
    removed meanwhile are not there.)"""
    there = _rows(spark, found, kind)
    if there is not None:
        is_bounded = found.since is not None or found.until is not None
        rows = there.where(found.holds()) if is_bounded else there
        return rows.withColumns({name: F.coalesce(name, parts) for name, parts in WHOLE.items()})
    return spark.range(0).select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in SCHEMAS[kind]])


def damaged(spark: SparkSession, found: Found, kind: str) -> set[str]:
    """The files of which fewer rows can be read than their footers promise. Ask only when the sum does not
    agree."""
    inside = look_through(spark, found, kind)
    return {
        file.path
        for file in found.usable
        if file.kind == kind and (file.path not in inside or inside[file.path].rows != file.rows)
    }


def look_through(spark: SparkSession, found: Found, kind: str) -> dict[str, Inside]:
    """What is in each usable file of a kind of which any row can be read. Reads every column of every row."""
    frame = _rows(spark, found, kind)
    if frame is None:
        return {}
    # Asked for a number of rows alone, Spark would read no column.
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
    """None: there is no file."""
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
    """Asks Spark for the columns of one file of each distinct footer: few, whatever the number of files."""
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
    """What is wrong with its columns."""
    try:
        theirs = spark.read.parquet(literally(file.path)).schema
    except PySparkException:
        return "its columns are not of Spark's types"
    return _difference(SCHEMAS[file.kind], theirs)


def _difference(ours: StructType, theirs: StructType) -> str | None:
    """What is missing or of another type. What may be null makes no difference, nor do more columns, nor the
    lack of those that were added later."""
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
    """Spark hashes no maps."""
    return F.to_json(field.name) if isinstance(field.dataType, MapType) else F.col(field.name)


def _plain(path: str) -> str:
    """`file:///a` and `file:/a` are one file."""
    scheme, _, rest = path.partition(":")
    return f"{scheme}:/{rest.lstrip('/')}" if scheme == "file" else path


def _first_line(error: Py4JJavaError) -> str:
    java: Any = error.java_exception
    message = str(java.getMessage() or java.toString()).splitlines()[0]
    return message[:_LONGEST_REASON]
