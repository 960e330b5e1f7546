"""Flags, addresses, log and errors of Spark, which the commands of this package share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from hbroker.cli.flags import all_of
from hbroker.errors import LocalError
from hbroker.spark_analysis.flags import SETTING

spark_flags: Final = all_of(
    click.option(
        "--master",
        metavar="URL",
        help="Spark's master (default: that of spark-submit or spark-defaults.conf, or local[*], this host)",
    ),
    click.option(
        "--conf",
        type=SETTING,
        multiple=True,
        help="a setting of Spark; may be given several times",
    ),
)


@dataclass(frozen=True, slots=True)
class Job:
    """What an analysis reads and writes, on which Spark."""

    directory: str
    out: str
    master: str | None
    conf: dict[str, str]
    as_json: bool


@contextmanager
def errors_of_spark() -> Iterator[None]:
    """Raises an error of the analysis, or a missing package, as LocalError."""
    try:
        from hbroker.spark_analysis.errors import AnalysisError
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    try:
        yield
    except AnalysisError as error:
        raise LocalError(str(error)) from error
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error


def spark_log(out: str) -> Path:
    """The path of Spark's log: beside the tables if these are on this host, otherwise in the temporary
    directory."""
    here = Path(tempfile.gettempdir()) if urlsplit(out).scheme else Path(out)
    return here / "spark.log"


def address_of(text: str) -> str:
    """A path of this host as a `file:` URL, so that a cluster does not look for it in its default file
    system.

    Other addresses stay as they are. Hadoop wants the path without escapes.
    """
    return text if urlsplit(text).scheme else f"file://{Path(text).resolve()}"


def _not_installed(error: ModuleNotFoundError) -> LocalError:
    return LocalError(f"{error.name} is not installed; pip install 'hbroker[analysis]'")
