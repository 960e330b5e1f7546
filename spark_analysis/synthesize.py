"""Makes telemetry of any size on Spark: `python -m spark_analysis.synthesize --rows 100000000 --out DIR`.

`city` defines the content of each row. Spark writes the rows below a hidden directory, under its own file
names and without the contract's version, which Spark cannot write. Then each file is published: its row
groups are copied without decoding, under a footer with the version, to a hidden name, and the copy is
renamed. So files appear whole, as those of a node do, at any address that Spark writes to.

The files hold more than ten seconds each, unlike those of a node: otherwise there would be millions.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .city import STARTED_AT, City, node_rows, topic_rows
from .data.schema import VERSION, VERSION_KEY
from .data.storage import Storage, below, literally
from .errors import AnalysisError
from .flags import SETTING
from .progress import Progression
from .session import interruptible, session

ROWS_OF_TASK: Final = 2_000_000
_THREADS: Final = 4
_INTERVALS_WANTED: Final = 600
_TOPICS_OF_BUILDING: Final = 110
_COUNT: Final = click.IntRange(min=1)


@click.command(context_settings={"show_default": True})
@click.option("--out", required=True, metavar="DIR", help="where to: any address that Spark writes to")
@click.option("--rows", type=_COUNT, default=1_000_000, metavar="N", help="rows of topics")
@click.option("--nodes", type=_COUNT, default=8, metavar="N", help="nodes of the network")
@click.option(
    "--buildings", type=_COUNT, metavar="N", help="of 100 topics each (default: for some 600 intervals)"
)
@click.option("--hours", type=float, default=24.0, help="length of what was observed")
@click.option("--seed", type=int, default=1, help="equal seeds, equal rows")
@click.option(
    "--master", metavar="URL", help="Spark's master (default: that of Spark's settings, or local[*])"
)
@click.option("--conf", type=SETTING, multiple=True, help="a setting of Spark")
def main(
    out: str,
    rows: int,
    nodes: int,
    buildings: int | None,
    hours: float,
    seed: int,
    master: str | None,
    conf: tuple[tuple[str, str], ...],
) -> None:
    """Makes telemetry of a city of buildings, of any size, to try the analysis on.

    Exit codes: 0 done, 1 failed, 2 wrong flags, 130 interrupted.
    """
    buildings = buildings or max(1, rows // (_INTERVALS_WANTED * _TOPICS_OF_BUILDING))
    city = City(rows, nodes, buildings, seed, hours)
    log = Path(tempfile.gettempdir()) / "spark_analysis.synthesize.log"
    begun = time.monotonic()
    try:
        with session("hbroker synthesize", master, log, dict(conf)) as spark:
            progress = Progression(spark)
            files = interruptible(spark, lambda: synthesize(spark, city, out, progress))
    except AnalysisError as error:
        print(f"synthesize: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    seconds = time.monotonic() - begun
    print(f"{city.rows:,} rows of {city.topics:,} topics in {files} files, {seconds:.1f} s: {out}")


def synthesize(spark: SparkSession, city: City, out: str, progress: Progression) -> int:
    """Writes the telemetry of a city into a directory, beside existing files. Returns the number of files.

    Raises AnalysisError if such files exist already.
    """
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    storage = Storage(spark)
    staging = below(out, ".staging")
    storage.remove(staging)
    try:
        with progress.step("rows of topics"):
            tasks = max(1, -(-city.rows // ROWS_OF_TASK))
            _stage(topic_rows(spark, city, tasks), below(staging, "topics"))
        with progress.step("rows of nodes"):
            topics = spark.read.parquet(literally(below(staging, "topics"))).drop("in_date", "at_node")
            _stage(node_rows(topics, city), below(staging, "nodes"))
        with progress.step("files") as step:
            files = sum(_publish(spark, storage, staging, kind, out) for kind in ("topics", "nodes"))
            step.tell(f"{files:,}")
    finally:
        storage.remove(staging)
    return files


def _stage(rows: DataFrame, directory: str) -> None:
    """Writes a directory for each day and node. Their names are not those of columns, which the files
    keep."""
    placed = rows.withColumns({"in_date": F.to_date("at"), "at_node": F.col("node")})
    placed.write.option("compression", "zstd").partitionBy("in_date", "at_node").parquet(directory)


def _publish(spark: SparkSession, storage: Storage, staging: str, kind: str, out: str) -> int:
    """Gives the files of a kind their final names: by node, numbered in the order of Spark's tasks."""
    targets: dict[str, str] = {}
    sequences: dict[str, int] = {}
    for path in storage.files(below(staging, kind)):
        date, node = path.split("/")[-3:-1]
        directory = below(out, date.replace("in_date=", "date="), node.replace("at_node=", "node="))
        sequence = sequences[node] = sequences.get(node, -1) + 1
        storage.make_directory(directory)
        targets[path] = below(directory, f"{kind}-{STARTED_AT}-{sequence}.parquet")
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(lambda pair: _copy(spark, storage, *pair), targets.items()))
    return len(targets)


def _copy(spark: SparkSession, storage: Storage, source: str, target: str) -> None:
    """Copies the row groups under a footer with the version. The copy appears whole, or not at all."""
    java: Any = spark.sparkContext._jvm
    parquet = java.org.apache.parquet.hadoop
    configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
    directory, _, name = target.rpartition("/")
    hidden = below(directory, f".{name}")
    given = parquet.util.HadoopInputFile.fromPath(storage.path(source), configuration)
    made = parquet.util.HadoopOutputFile.fromPath(storage.path(hidden), configuration)
    schema = (
        parquet.ParquetFileReader.readFooter(configuration, storage.path(source))
        .getFileMetaData()
        .getSchema()
    )
    block, padding = parquet.ParquetWriter.DEFAULT_BLOCK_SIZE, parquet.ParquetWriter.MAX_PADDING_SIZE_DEFAULT
    writer = parquet.ParquetFileWriter(made, schema, parquet.ParquetFileWriter.Mode.OVERWRITE, block, padding)
    writer.start()
    writer.appendFile(given)
    writer.end({VERSION_KEY: VERSION})
    if not storage.move(hidden, target):
        storage.remove(hidden)
        raise AnalysisError(f"{target} is there already: name another directory, or empty it")


if __name__ == "__main__":
    main()
