"""A Spark session that keeps quiet: made here, stopped here.

PySpark starts a Java process. Spark's log goes to a file, by a configuration of log4j that the process is
started with, and so does what the Java process itself says, for its standard error is that file. Ctrl-C is
Python's alone: PySpark has the Java process ignore it and cancels the running jobs.

What is left to Spark's own defaults: memory of driver and executors, adaptive execution (AQE), broadcast
thresholds. On this machine alone (`local…`) there are few cores, so a shuffle has few partitions; a cluster
keeps Spark's 200, which AQE merges where they are small.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from .errors import AnalysisError, NotInstalled

LOCAL: Final = "local[*]"
OLDEST_JAVA: Final = 17
_ADVICE: Final = f"install Java {OLDEST_JAVA} or later (Debian, Ubuntu: apt install default-jre-headless)"


@contextmanager
def session(name: str, master: str, log: Path, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for one job, with Spark's log in the file `log`. `conf` overrides what is set here.

    Raises NotInstalled without Java, AnalysisError where Spark does not start.
    """
    require_java()
    log.parent.mkdir(parents=True, exist_ok=True)
    with as_file(files(__package__) / "log4j2.properties") as logging, log.open("ab") as sink:
        settings = {**_settings(master, logging, log), **conf}
        builder = SparkSession.builder.appName(name).master(master).config(map=dict(settings))
        try:
            with _standard_error_to(sink.fileno()):
                spark = builder.getOrCreate()
        except Exception as error:
            raise AnalysisError(f"Spark did not start with --master {master}; its log is {log}") from error
        spark.sparkContext.setLogLevel("WARN")
        try:
            yield spark
        finally:
            with suppress(Exception):
                spark.stop()


def require_java() -> None:
    """Raises NotInstalled where there is no Java, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise NotInstalled(f"there is no Java, which Spark runs on; {_ADVICE}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is not None and int(version[1]) < OLDEST_JAVA:
        raise NotInstalled(f"{java} is Java {version[1]}, which Spark does not run on; {_ADVICE}")


def _settings(master: str, logging: Path, log: Path) -> dict[str, str]:
    options = f"-Dlog4j2.configurationFile={logging.as_uri()} -Dspark_analysis.log={log.resolve()}"
    settings = {
        "spark.driver.extraJavaOptions": options,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        }
    return settings


@contextmanager
def _standard_error_to(descriptor: int) -> Iterator[None]:
    """What is started meanwhile inherits it."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
