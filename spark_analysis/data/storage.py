"""Files at any address that Spark reads, through Hadoop's file systems in the driver's Java process.

Python's own functions read only local paths, and pyarrow's file systems need their own credentials. Here the
addresses and the credentials are those of Spark.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ..errors import AnalysisError

FOLLOWED: Final = "follow"
"""The directory below an output in which `follow` keeps what it needs to continue."""


class Storage:
    """The file systems of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        java: Any = spark.sparkContext._jvm
        self._path = java.org.apache.hadoop.fs.Path
        self._footers = java.org.apache.parquet.hadoop.ParquetFileReader
        self._metadata = java.org.apache.parquet.hadoop.metadata.ParquetMetadata
        self._streams = java.org.apache.commons.io.IOUtils

    def path(self, address: str) -> Any:
        """The address as Hadoop's Path."""
        return self._path(address)

    def exists(self, address: str) -> bool:
        """Whether the address exists."""
        path = self.path(address)
        return bool(path.getFileSystem(self._configuration).exists(path))

    def write(self, address: str, text: str) -> None:
        """Writes a text file, replacing an existing one."""
        path = self.path(address)
        stream = path.getFileSystem(self._configuration).create(path, True)
        try:
            stream.write(text.encode("utf-8"))
        finally:
            stream.close()

    def write_whole(self, address: str, text: str) -> None:
        """As `write`, but atomic for readers: writes under a hidden name first, then renames."""
        directory, _, name = address.rpartition("/")
        hidden = below(directory, f".{name}")
        self.write(hidden, text)
        self.remove(address)
        if not self.move(hidden, address):
            raise AnalysisError(f"{address} could not be written")

    def read(self, address: str) -> str:
        """The content of a text file."""
        path = self.path(address)
        stream = path.getFileSystem(self._configuration).open(path)
        try:
            return str(self._streams.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self, directory: str) -> list[str]:
        """The names in a directory, without hidden ones; none if there is no such directory."""
        if not self.exists(directory):
            return []
        path = self.path(directory)
        found = path.getFileSystem(self._configuration).listStatus(path)
        names = [str(status.getPath().getName()) for status in found]
        return sorted(name for name in names if not name.startswith((".", "_")))

    def remove(self, address: str) -> None:
        """Removes a file, or a directory with its content. Does nothing if the address does not exist."""
        path = self.path(address)
        path.getFileSystem(self._configuration).delete(path, True)

    def move(self, source: str, target: str) -> bool:
        """Renames within one file system. Returns False if the file system refused."""
        path = self.path(source)
        return bool(path.getFileSystem(self._configuration).rename(path, self.path(target)))

    def make_directory(self, address: str) -> None:
        """Makes a directory and its parents."""
        path = self.path(address)
        path.getFileSystem(self._configuration).mkdirs(path)

    def files(self, directory: str) -> list[str]:
        """The addresses of all files below a directory, without hidden files and directories (`.…`, `_…`).

        Spark lists many directories in parallel, as a job. Raises AnalysisError if there is no such
        directory.
        """
        if not self.exists(directory):
            raise AnalysisError(f"{directory}: there is no such directory")
        reader = self._spark.read.format("binaryFile").option("recursiveFileLookup", True)
        reader = reader.option("ignoreMissingFiles", True)  # Writers remove their oldest files.
        try:
            found = reader.load(literally(directory)).inputFiles()
        except PySparkException as error:
            raise AnalysisError(f"{directory}: {error}") from error
        return sorted(unquote(uri) for uri in found)

    def footer(self, address: str) -> str:
        """The footer of a Parquet file as JSON. Raises py4j's error if it is not readable."""
        footer = self._footers.readFooter(self._configuration, self.path(address))
        return str(self._metadata.toJSON(footer))

    def span(self, address: str, column: str) -> tuple[int, int] | None:
        """The least and the greatest time of a Parquet file's column, in microseconds since the epoch, from
        its footer.

        None: the footer does not have them, or is not readable.
        """
        try:
            footer = self._footers.readFooter(self._configuration, self.path(address))
            index = footer.getFileMetaData().getSchema().getFieldIndex(column)
            found = [self._span_of(block.getColumns()[index], column) for block in footer.getBlocks()]
        except Py4JJavaError:
            return None
        spans = [span for span in found if span is not None]
        if not spans or len(spans) < len(found):
            return None
        return min(low for low, _ in spans), max(high for _, high in spans)

    @staticmethod
    def _span_of(chunk: Any, column: str) -> tuple[int, int] | None:
        """The same of one row group. (A nested column before this one would shift its index.)"""
        kind = chunk.getPrimitiveType()
        statistics = chunk.getStatistics()
        is_told = chunk.getPath().toDotString() == column and statistics.hasNonNullValue()
        if not is_told or "MICROS" not in str(kind.getLogicalTypeAnnotation()):
            return None
        return int(statistics.genericGetMin()), int(statistics.genericGetMax())


def literally(address: str) -> str:
    """The address with the pattern characters of Spark's readers escaped: `*`, `?`, `[` and `{`."""
    return re.sub(r"([\\*?\[\]{}])", r"\\\1", address)


def below(directory: str, *names: str) -> str:
    """An address inside a directory."""
    return "/".join([directory.rstrip("/"), *names])
