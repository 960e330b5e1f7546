"""Where Spark runs, and what a user is told when it fails (docs/analysis.md)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyspark
import pytest

from hbroker.spark_analysis import small
from hbroker.spark_analysis.failures import reason_of
from tests.needs import need
from tests.product.network import PROJECT

PATIENCE_S = 120.0

PROGRAM = """
import json, sys
from pathlib import Path
from hbroker.spark_analysis.session import session
with session("test", None, Path(sys.argv[1]) / "spark.log", {}) as spark:
    context = spark.sparkContext
    text = json.dumps([context.master, context.getConf().get("spark.driver.host")])
    (Path(sys.argv[1]) / "told.json").write_text(text)
"""


@pytest.fixture(autouse=True)
def _needs_java() -> None:
    need(shutil.which("java") is not None, "there is no Java")


def master_and_host(place: Path, command: list[str], **more: str) -> object:
    """The master and the driver's host in a program that names no master. Its log is in `place`."""
    (place / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": sys.executable, **more}
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    ran = subprocess.run(
        [*command, str(place / "program.py"), str(place)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads((place / "told.json").read_text())


def test_without_a_master_spark_defaults_or_local_spark_is_used(tmp_path: Path) -> None:
    assert master_and_host(tmp_path, [sys.executable]) == ["local[*]", "127.0.0.1"]
    (tmp_path / "spark-defaults.conf").write_text("spark.master local[3]\n")
    assert master_and_host(tmp_path, [sys.executable], SPARK_CONF_DIR=str(tmp_path)) == [
        "local[3]",
        "127.0.0.1",
    ]


def test_without_a_master_that_of_spark_submit_is_used(tmp_path: Path) -> None:
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[3]"]
    assert master_and_host(tmp_path, submit) == ["local[3]", "127.0.0.1"]


class Failure(Exception):
    """Like the exceptions of Py4J and PySpark: the Java exceptions are in its text."""


MISSING = """An error occurred while calling o43.load.
: java.lang.RuntimeException: ClassNotFoundException: Class org.apache.hadoop.S3AFileSystem not found
\tat org.apache.hadoop.conf.Configuration.getClass(Configuration.java:2737)
Caused by: java.lang.ClassNotFoundException: Class org.apache.hadoop.S3AFileSystem not found
\tat org.apache.hadoop.conf.Configuration.getClassByName(Configuration.java:2641)
"""


def test_an_error_with_an_s3_address_names_the_missing_package() -> None:
    reason = reason_of(Failure(MISSING))
    assert "S3AFileSystem not found" in reason
    assert "\n" not in reason
    assert "An error occurred" not in reason
    jar = next(Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar"))
    hadoop = jar.stem.rpartition("-")[2]
    assert f"--conf spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop}" in reason


def test_the_documented_package_fits_the_installed_spark() -> None:
    reason = reason_of(Failure(MISSING))
    package = reason.rpartition("=")[2]
    for document in ("docs/analysis.md", "hbroker/cli/analysis/analyze.py"):
        assert package in (PROJECT / document).read_text(), f"{document}, for PySpark {version('pyspark')}"


def test_the_innermost_cause_is_reported() -> None:
    text = """[FAILED] Job aborted due to stage failure
JVM stacktrace:
org.apache.spark.SparkException: Job aborted
Caused by: java.io.IOException: could not read
\t... 12 more
Caused by: java.net.ConnectException: Connection refused
\t... 13 more
"""
    assert reason_of(Failure(text)) == (
        "[FAILED] Job aborted due to stage failure; caused by: ConnectException: Connection refused"
    )


def test_an_error_without_a_message_is_reported_as_such() -> None:
    assert reason_of(Failure("")) == "no reason given"


@pytest.mark.parametrize("length", [10, 10_000])
def test_a_long_reason_is_truncated(length: int) -> None:
    assert len(reason_of(Failure("x" * length))) <= 401


def test_only_a_local_directory_with_few_bytes_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = tmp_path / "date=2026-03-01 50%"
    day.mkdir()
    directories = sum(path.stat().st_size for path in (tmp_path, *tmp_path.rglob("*")))
    monkeypatch.setattr(small, "MOST_BYTES", directories + 100)
    (day / "one").write_bytes(bytes(90))
    assert small.is_small(f"file://{tmp_path}")
    assert small.is_small(str(day))
    assert small.is_small(f"file://{tmp_path}/nowhere")
    assert not small.is_small("s3a://bucket/telemetry")
    (day / "two").write_bytes(bytes(directories + 90))
    assert not small.is_small(f"file://{tmp_path}")
