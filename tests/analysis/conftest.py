"""One Spark session for all tests of this folder that run in the same process."""

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
    """A session with two threads, few partitions and no code generation: small data on a small machine.

    The tests of the command run Spark with its defaults.
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
