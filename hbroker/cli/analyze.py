"""`hbroker analyze`: where the load of a network sits, from its telemetry."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hbroker.cli.exits import DONE
from hbroker.cli.flags import add_json, command
from hbroker.cli.output import print_json, print_table
from hbroker.errors import LocalError

if TYPE_CHECKING:
    from hbroker.cli.flags import Commands

_TEXT = """\
Reads the telemetry that nodes and gateways write, on Spark, and leaves tables (Parquet and CSV) and
one page, report.html, in OUT: who carries which share of the load, how uneven that is, which topics
and subtrees make it, latencies, drops, what a message costs, and when each node will be saturated.
plan.yaml there says what to move so that the load is even: `hbroker apply` carries it out.
Files that are no telemetry are skipped and named. docs/analysis.md says what the tables mean.

examples:
  hbroker analyze .hbroker/home/telemetry --out analysis
  hbroker analyze .hbroker/home/telemetry --out analysis --window 60 --json
  hbroker analyze s3a://bucket/telemetry --out s3a://bucket/analysis \\
      --master spark://host:7077 --conf spark.hadoop.fs.s3a.endpoint=…

--json prints {source, out, report, begin, end, window_s, files, rows, skipped: [{path, reason}],
  imbalance: {role: {nodes, load, largest, mean, max_over_mean, variation, gini, jain}}, dropped,
  lost, accounts_agree, tables, plan: {file, max_over_mean: [before, after], moves: [{step, subtree,
  source, target, merged, load}], nodes: [{node, capacity, before, after, subtrees}]}}

exit codes: 0 done, 1 failed (no telemetry, no Java, no Spark), 2 wrong flags, 130 interrupted
"""


def add(commands: Commands) -> None:
    """Declares the command."""
    from hbroker.spark_analysis.flags import setting

    parser = command(commands, "analyze", run, "find where the load of a network sits", _TEXT)
    parser.add_argument("directory", metavar="DIR", help="the telemetry: a path, or any address Spark reads")
    parser.add_argument("--out", required=True, metavar="OUT", help="where the tables and the report go")
    parser.add_argument(
        "--master", default="local[*]", metavar="URL", help="Spark's master (default: %(default)s, this host)"
    )
    parser.add_argument(
        "--window",
        type=_whole,
        metavar="SECONDS",
        help="length of a window (default: about a hundred in all)",
    )
    parser.add_argument(
        "--top", type=_whole, default=100, metavar="N", help="rows of each ranking (default: %(default)s)"
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        type=setting,
        metavar="KEY=VALUE",
        help="a setting of Spark; may be given several times",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Analyses, and says in short what came of it."""
    try:
        summary = _analyse(options)
    except ModuleNotFoundError as error:
        raise LocalError(f"{error.name} is not installed; pip install 'hbroker[analysis]'") from error
    if options.json:
        print_json(summary)
    else:
        _print(summary)
    return DONE


def _analyse(options: argparse.Namespace) -> dict[str, Any]:
    from hbroker.spark_analysis.batch import Settings, analyse
    from hbroker.spark_analysis.errors import AnalysisError
    from hbroker.spark_analysis.progress import Progression
    from hbroker.spark_analysis.session import interruptible, session

    settings = Settings(window_s=options.window, first=options.top)
    try:
        with session("hbroker analyze", options.master, _log(options.out), dict(options.conf)) as spark:
            source, out, progress = _address(options.directory), _address(options.out), Progression(spark)
            return interruptible(spark, lambda: analyse(spark, source, out, settings, progress))
    except AnalysisError as error:
        raise LocalError(str(error)) from error


def _log(out: str) -> Path:
    """Spark's log lies beside the tables, where that is a directory of this host."""
    here = Path(tempfile.gettempdir()) if urlsplit(out).scheme else Path(out)
    return here / "spark.log"


def _address(text: str) -> str:
    """A path of this host is told to be one, whatever file system a cluster takes for its own. Hadoop wants
    it as it is, without escapes."""
    return text if urlsplit(text).scheme else f"file://{Path(text).resolve()}"


def _print(summary: dict[str, Any]) -> None:
    columns = ("nodes", "load", "max_over_mean", "variation", "gini", "jain")
    rows = [
        [role, *(_figure(spread[name]) for name in columns)] for role, spread in summary["imbalance"].items()
    ]
    print_table(["role", *columns], rows, numbers=columns)
    print()
    for file in summary["skipped"]:
        print(f"skipped {file['path']}: {file['reason']}")
    if not summary["accounts_agree"]:
        print("what nodes count and what their topics add up to differs: see accounts.csv")
    print(f"{summary['lost']:,} messages lost")
    _print_plan(summary["plan"])
    print(f"report: {summary['report']}")


def _print_plan(plan: dict[str, Any]) -> None:
    if plan["file"] is None:
        print(f"no plan: {plan['reason']}")
        return
    before, after = plan["max_over_mean"]
    if not plan["moves"]:
        print(f"plan: nothing to move; the largest load is {before:.2f} of the mean")
        return
    moves = f"{len(plan['moves'])} {'moves take' if plan['moves'][1:] else 'move takes'}"
    print(f"plan: {moves} the largest load from {before:.2f} to {after:.2f} of the mean")
    print(f"      hbroker apply {plan['file'].removeprefix('file://')}")


def _figure(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


def _whole(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if not 0 < value <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1,000,000")
    return value
