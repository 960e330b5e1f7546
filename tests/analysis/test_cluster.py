"""A real master with two workers makes the same tables as `local[*]`. Only in the long form."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psutil
import pyarrow.parquet as pq
import pytest

from hbroker.cli.exits import DONE
from tests.frame.checkout import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("in_long_form")]

PATIENCE_S: Final = 120.0
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
LOCAL: Final = ["--host", "127.0.0.1", "--webui-port", "0"]
DRIVER: Final = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.sql.shuffle.partitions=4"]
"""For two executors, started by two workers."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two registered workers."""
    with ExitStack() as stack:
        log = stack.enter_context(_running(tmp_path, "master", MASTER, "--port", "0", *LOCAL))
        until(lambda: _address(log) is not None, "a master", PATIENCE_S, found=log.read_text)
        address = _address(log)
        assert address is not None
        for name in ("one", "two"):
            worker = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / name), *LOCAL, address]
            stack.enter_context(_running(tmp_path, name, WORKER, *worker))
        until(
            lambda: log.read_text().count("Registering worker") == 2,
            "two workers",
            PATIENCE_S,
            found=log.read_text,
        )
        yield address


def test_a_cluster_makes_the_same_tables_as_local_spark(cluster: str, tmp_path: Path) -> None:
    city = f"file://{tmp_path}/telemetry"
    _run(
        "-m",
        "hbroker.spark_analysis.synthesize",
        "--rows",
        "200000",
        "--out",
        city,
        "--master",
        cluster,
        *DRIVER,
    )
    for name, master in (("cluster", cluster), ("alone", "local[2]")):
        _run("-m", "hbroker", "analyze", city, "--out", str(tmp_path / name), "--master", master, *DRIVER)
    tables = sorted(path.name for path in (tmp_path / "alone").glob("*.parquet"))
    assert len(tables) > 10
    for table in tables:
        ours, theirs = (pq.read_table(tmp_path / name / table) for name in ("cluster", "alone"))
        if table not in ("cost.parquet", "forecast.parquet"):
            assert sorted(map(_rounded, ours.to_pylist())) == sorted(map(_rounded, theirs.to_pylist())), table
        assert len(ours) == len(theirs)
    assert all((tmp_path / name).glob("app-*/*/stderr") for name in ("one", "two"))


def _run(*command: str) -> None:
    ran = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ran.returncode == DONE, ran.stderr


def _rounded(row: dict[str, object]) -> str:
    """The row as text. Sums of fractions depend on the order of the additions, so they are rounded."""
    return str({name: f"{value:.9g}" if isinstance(value, float) else value for name, value in row.items()})


def _address(log: Path) -> str | None:
    found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
    return found[1] if found else None


@contextmanager
def _running(place: Path, name: str, *command: str) -> Iterator[Path]:
    """A process of Spark, and its log."""
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    program = Path(package.origin).parent / "bin" / "spark-class"
    log = place / f"{name}.log"
    with log.open("wb") as sink:
        process = subprocess.Popen([program, *command], stdout=sink, stderr=sink)
    try:
        yield log
    finally:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for member in family:
            member.terminate()
        process.wait(PATIENCE_S)
        psutil.wait_procs(family, timeout=PATIENCE_S)
