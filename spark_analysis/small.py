"""Settings for a small input: Spark's defaults prepare for a large one, which takes longer than the work
itself.

Spark compiles each query to Java, plans each of its stages again, and the JVM optimises code that runs often.
With the few thousand rows of a house no code runs often. So if the files are small and on this host, queries
are interpreted, a shuffle has one partition, and the JVM uses only its fast compiler. On two CPUs this
reduced the analysis of half a minute of a house from 62 to 22 seconds of CPU time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 32 << 20
"""The size of all files together: some hours of a house, or some millions of rows with many busy topics."""

SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}
"""Settings of Spark. The user's settings override them."""

JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Flags of the driver's Java process."""


def is_small(directory: str) -> bool:
    """Whether a directory (as given to Spark) is on this host and small.

    An unreadable directory counts as empty: Spark will report it.
    """
    scheme, colon, path = directory.partition("://")
    if colon and scheme != "file":
        return False
    left = MOST_BYTES
    for size in _sizes(Path(path if colon else directory)):
        left -= size
        if left < 0:
            return False
    return True


def _sizes(directory: Path) -> Iterator[int]:
    try:
        for path in directory.rglob("*"):
            yield path.stat().st_size
    except OSError:
        return
