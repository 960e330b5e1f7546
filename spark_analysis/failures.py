"""Why Spark failed: the cause, in a line, and what helps where that is known.

An exception of the Java process wraps the one that caused it, often several times, and PySpark shows the
outermost first. The innermost says what is wrong: a host that does not answer, a class that is not there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import pyspark

_CAUSE: Final = re.compile(r"^\s*Caused by: (.*)$", re.MULTILINE)
_JAVA_CLASS: Final = re.compile(r"^(?:[a-z_]\w*\.)+([A-Z]\w*(?:\$\w+)?): ?")
_LONGEST: Final = 400

# The module of Hadoop that reads the addresses of a scheme, by the class that is missing without it.
_MODULES: Final = {
    "S3AFileSystem": "hadoop-aws",
    "AzureBlobFileSystem": "hadoop-azure",
    "NativeAzureFileSystem": "hadoop-azure",
}


def reason_of(error: BaseException) -> str:
    """The first line of what went wrong, its innermost cause, and the remedy where one is known."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = _words(_told(lines))
    causes = [_words(line) for line in _CAUSE.findall(text)]
    parts = [first]
    if causes and causes[-1] not in first:
        parts.append(f"caused by: {causes[-1]}")
    remedy = _remedy(text)
    return "; ".join([*parts, remedy] if remedy else parts)


def _told(lines: list[str]) -> str:
    """Py4J begins with a line that says only which call failed."""
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return lines[1].removeprefix(": ")
    return lines[0] if lines else "no reason given"


def _words(line: str) -> str:
    """Without the package of the Java class; its name stays, for it is what one looks up."""
    short = _JAVA_CLASS.sub(r"\1: ", line.strip())
    return short if len(short) <= _LONGEST else f"{short[:_LONGEST]}…"


def _remedy(text: str) -> str | None:
    if "ClassNotFoundException" not in text:
        return None
    for missing, module in _MODULES.items():
        if missing in text:
            return f"add --conf spark.jars.packages=org.apache.hadoop:{module}:{_hadoop_version()}"
    return None


def _hadoop_version() -> str:
    """Of the Spark that runs: its modules must be of one version."""
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    found = next(home.glob("jars/hadoop-client-api-*.jar"), None)
    return found.stem.removeprefix("hadoop-client-api-") if found else "VERSION"
