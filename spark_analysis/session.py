"""A Spark session for one job, with its log in a file.

PySpark starts a Java process. Spark's log goes to a file, by a log4j configuration that the process gets at
its start. The standard error of the Java process is the same file.

Ctrl-C reaches only Python. PySpark would handle it with a call into Java, inside the call that it interrupts,
which breaks the protocol between the two. So its handler is removed, and work runs in another thread
(`interruptible`): the main thread is interrupted while it waits, and cancels the jobs.

The master is the caller's, or that of `spark-submit` or `spark-defaults.conf`, or this machine (`local[*]`,
Spark's own default). It is known once the Java process runs, before there is a context.

Spark's own defaults hold for the memory of driver and executors, adaptive query execution (AQE), and
broadcast thresholds. On this machine (`local…`) there are few cores, so a shuffle has few partitions. A
cluster keeps Spark's 200, which AQE coalesces if they are small.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from .errors import AnalysisError, NotInstalled
from .failures import reason_of

Result = TypeVar("Result")

OLDEST_JAVA: Final = 17
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_ADVICE: Final = f"install Java {OLDEST_JAVA} or later (Debian, Ubuntu: apt install default-jre-headless)"


@contextmanager
def session(
    name: str, master: str | None, log: Path, conf: Mapping[str, str], java: Sequence[str] = ()
) -> Iterator[SparkSession]:
    """A session for one job, with Spark's log in the file `log`.

    `conf` overrides the settings made here. Without `master` it is that of spark-submit or
    spark-defaults.conf, or this machine. `java`: further flags of the driver's Java process. Raises
    NotInstalled without Java, and AnalysisError if Spark does not start, or the job fails.
    """
    require_java()
    log.parent.mkdir(parents=True, exist_ok=True)
    with as_file(files(__package__) / "log4j2.properties") as logging, log.open("ab") as sink:
        try:
            with _standard_error_to(sink.fileno()), _own_interrupts():
                spark = _started(name, {**_settings(master, logging, log, java), **conf})
        except Exception as error:
            where = f" with --master {master}" if master else ""
            raise AnalysisError(
                f"Spark did not start{where}: {reason_of(error)} (its log is {log})"
            ) from error
        try:
            yield spark
        except (PySparkException, Py4JError) as error:
            raise AnalysisError(f"Spark failed: {reason_of(error)} (its log is {log})") from error
        finally:
            with suppress(Exception):
                spark.stop()


def tasks_of_cpu(spark: SparkSession, tasks: int) -> None:
    """On this machine, sets the shuffle partitions to `tasks` for each CPU, unless a setting has their
    number."""
    context = spark.sparkContext
    if _is_local(context.master) and context.getConf().get(_PARTITIONS) is None:
        spark.conf.set(_PARTITIONS, str(tasks * (os.cpu_count() or 1)))


def interruptible(
    spark: SparkSession, work: Callable[[], Result], end: Callable[[], object] | None = None
) -> Result:
    """Runs the work in a thread. At Ctrl-C it ends the session, waits for the work, and raises
    KeyboardInterrupt.

    `end`: makes the work end by itself; then the session stays until it has ended.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            with suppress(Exception):
                if end is not None:
                    end()
                else:
                    spark.sparkContext.cancelAllJobs()
                    spark.stop()
            raise


def require_java() -> None:
    """Raises NotInstalled if there is no Java, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        raise NotInstalled(f"there is no Java, which Spark runs on; {_ADVICE}")
    reported = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', reported)
    if version is not None and int(version[1]) < OLDEST_JAVA:
        raise NotInstalled(f"{java} is Java {version[1]}, which Spark does not run on; {_ADVICE}")


def _started(name: str, settings: Mapping[str, str]) -> SparkSession:
    """Starts the Java process first: it reads spark-defaults.conf, and so knows the master."""
    given = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    SparkContext._ensure_initialized(conf=given)
    conf = {"spark.master": SparkConf().get("spark.master") or "local[*]", **settings}
    if _is_local(conf["spark.master"]):
        conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **conf}
    spark = SparkSession.builder.appName(name).config(map={**conf}).getOrCreate()
    tasks_of_cpu(spark, 4)
    return spark


def _settings(master: str | None, logging: Path, log: Path, java: Sequence[str]) -> dict[str, str]:
    options = (f"-Dlog4j2.configurationFile={logging.as_uri()}", f"-Dspark_analysis.log={log.resolve()}")
    settings = {
        "spark.driver.extraJavaOptions": " ".join([*options, *java]),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return settings if master is None else {**settings, "spark.master": master}


def _is_local(master: str | None) -> bool:
    return master is not None and master.startswith("local")


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Restores the former handler of Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def _standard_error_to(descriptor: int) -> Iterator[None]:
    """Redirects standard error, which processes that start inside the block inherit."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
