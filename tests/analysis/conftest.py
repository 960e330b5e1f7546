"""One Spark session for all tests of this directory that a process runs."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.needs import need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two threads, few partitions, and no compiling of what runs for a moment: small data on a small machine.

    Spark as it is by itself runs in the tests of the command.
    """
    need(shutil.which("java") is not None, "there is no Java")
    need(importlib.util.find_spec("pyspark") is not None, "pyspark is not installed")
    from hbroker.spark_analysis.session import session

    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        with session("tests", "local[2]", log, conf) as made:
            yield made
