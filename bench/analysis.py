"""How fast the load analysis is: `python -m bench.analysis --rows 1000000 --rows 10000000`.

Compares the heaviest step of `hbroker analyze`, the sums of all rows by topic and node, with the same sums by
DuckDB on the same files, and measures the whole analysis. Both run alternately in one run, and read and write
Parquet. The start of Spark is not included; it is reported separately, because it happens once. Missing
telemetry is made first.

The project does not install DuckDB: `pip install duckdb`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from hbroker.bench.process import descendants
from hbroker.spark_analysis.batch import Settings, analyse
from hbroker.spark_analysis.data import reading
from hbroker.spark_analysis.measures import hierarchy
from hbroker.spark_analysis.progress import Progression
from hbroker.spark_analysis.session import session
from hbroker.spark_analysis.synthesize import main as synthesize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUMS = """
COPY (
    SELECT role, node, topic, count(*) AS intervals,
        sum(messages_in) AS messages_in, sum(bytes_in) AS bytes_in,
        sum(messages_out) AS messages_out, sum(bytes_out) AS bytes_out,
        sum(messages_in + messages_out) AS load
    FROM read_parquet('{source}/**/topics-*.parquet', hive_partitioning = false)
    GROUP BY ALL
) TO '{out}' (FORMAT parquet)
"""


@click.command
@click.option("--rows", type=int, multiple=True, default=[1_000_000], show_default=True)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, resolve_path=True),
    required=True,
    help="Where the telemetry is, or is to be made.",
)
@click.option("--rounds", default=3, show_default=True, help="Of the sums.")
def main(rows: Sequence[int], directory: Path, rounds: int) -> None:
    """Measures how fast the analysis is, and prints a line for each number of rows."""
    if find_spec("duckdb") is None:
        raise click.UsageError("DuckDB is what it is measured beside: pip install duckdb")
    sources = {count: directory / str(count) for count in rows}
    for count, source in sources.items():
        if not source.exists():
            synthesize(["--rows", str(count), "--out", f"file://{source}"], standalone_mode=False)
    print(f"{'rows':>12} {'Spark s':>9} {'rows/s':>11} {'DuckDB s':>9} {'rows/s':>11} {'analysis s':>10}")
    with TemporaryDirectory() as place:
        begun = time.monotonic()
        with session("bench", "local[*]", Path(place) / "spark.log", {}) as spark:
            print(f"Spark started in {time.monotonic() - begun:.1f} s", file=sys.stderr)
            for count, source in sources.items():
                _measure(spark, count, source, Path(place), rounds)
            print(f"Spark's process had {_peak_mib():.0f} MiB resident at most")


def _measure(spark: SparkSession, rows: int, source: Path, place: Path, rounds: int) -> None:
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        ours.append(_seconds(lambda: _sum_by_spark(spark, source, place)))
        theirs.append(_seconds(lambda: _sum_by_duckdb(source, place)))
    whole = _seconds(
        lambda: analyse(spark, f"file://{source}", f"file://{place}/out", Settings(), Progression(spark))
    )
    figures = [f"{seconds:>9.2f} {rows / seconds:>11,.0f}" for seconds in (min(ours), min(theirs))]
    print(f"{rows:>12,} {' '.join(figures)} {whole:>10.1f}", flush=True)


def _sum_by_spark(spark: SparkSession, source: Path, place: Path) -> None:
    found = reading.find(spark, f"file://{source}")
    totals = hierarchy.topic_totals(reading.read(spark, found, "topics"))
    totals.write.mode("overwrite").parquet(f"file://{place}/topics.parquet")


def _sum_by_duckdb(source: Path, place: Path) -> None:
    import duckdb

    connection: Any = duckdb.connect(config={"threads": os.cpu_count() or 1})
    connection.execute(_SUMS.format(source=source, out=place / "duckdb.parquet"))
    connection.close()


def _peak_mib() -> float:
    """The largest peak of resident memory, in MiB, of this process's descendants; Linux only."""
    status = [Path(f"/proc/{pid}/status").read_text() for pid in descendants(os.getpid())]
    return max(int(found[1]) for text in status if (found := re.search(r"VmHWM:\s+(\d+)", text))) / 1024


def _seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
