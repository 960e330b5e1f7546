"""The reason of a Spark failure in one line, with a remedy if one is known.

An exception of the Java process wraps its cause, often several times, and PySpark shows the outermost first.
The innermost has the reason: a host that does not answer, a class that is missing.
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

# By a class: the Hadoop module that has it, and so can read addresses of its scheme.
_MODULES: Final = {
    "S3AFileSystem": "hadoop-aws",
    "AzureBlobFileSystem": "hadoop-azure",
    "NativeAzureFileSystem": "hadoop-azure",
}


def reason_of(error: BaseException) -> str:
    """The first line of the error, its innermost cause, and the remedy if one is known."""
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
    """Skips the first line of Py4J, which only says which call failed."""
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return lines[1].removeprefix(": ")
    return lines[0] if lines else "no reason given"


def _words(line: str) -> str:
    """The line without the package of the Java class. The class name stays, because users search for it."""
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
    """The Hadoop version of the running Spark, which its modules must have, too."""
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    found = next(home.glob("jars/hadoop-client-api-*.jar"), None)
    return found.stem.removeprefix("hadoop-client-api-") if found else "VERSION"
