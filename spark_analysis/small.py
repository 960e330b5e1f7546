"""What suits a small input: Spark prepares for a large one, which takes longer than all the work here.

Spark compiles each query to Java, plans each of its stages anew, and has the Java machine optimise what runs
often. Of a house's few thousand rows nothing runs often. So where the files are few and on this host, queries
are interpreted, a shuffle has one part, and the Java machine compiles once and quickly. On two CPUs this took
the analysis of half a minute of a house from 62 to 22 seconds of CPU time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 32 << 20
"""Of all files together: some hours of a house, some millions of rows where many topics are busy."""

SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}
"""Of Spark. What a user sets goes before."""

JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Flags of the driver's Java process."""


def is_small(directory: str) -> bool:
    """Whether a directory, given as Spark is given it, is on this host and holds little. What cannot be read
    is taken for nothing: Spark will say so."""
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
