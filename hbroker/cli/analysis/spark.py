"""Flags, addresses, log and errors of Spark, which the commands of this package share."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from hbroker.errors import LocalError


def add_spark(parser: argparse.ArgumentParser) -> None:
    """Declares `--master` and `--conf`."""
    from hbroker.spark_analysis.flags import setting

    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark's master (default: that of spark-submit or spark-defaults.conf, or local[*], this host)",
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="a setting of Spark; may be given several times",
    )


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
