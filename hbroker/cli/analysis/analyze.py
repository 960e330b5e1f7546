"""`hbroker analyze`: the distribution of a network's load, from its telemetry."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

import click

from hbroker.cli.analysis.follow import FollowFlags, follow_flags
from hbroker.cli.analysis.follow import follow as run_follow
from hbroker.cli.analysis.spark import Job, address_of, errors_of_spark, spark_flags, spark_log
from hbroker.cli.analysis.times import WHEN, time, when
from hbroker.cli.commands import Option, command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import FILE, WHOLE, Value, json_flag, refuse
from hbroker.cli.output import print_json, print_table

_Selection: TypeAlias = tuple[datetime | None, datetime | None, datetime | None, bool]
"""Since, until, the time of the run, whether all runs."""

_TEXT = """\
Reads the telemetry that nodes and gateways write, on Spark, and leaves tables (Parquet and CSV) and
one page, report.html, in OUT: who carries which share of the load, how uneven that is, which topics
and subtrees make it, latencies, drops, what a message costs, and when each node will be saturated.
plan.yaml there says what to move so that the load is even: `hbroker apply` carries it out.
Files that are no telemetry are skipped and named. docs/analysis.md says what the tables mean.

Where DIR holds several runs of a network, the latest is analysed, and the others are named. A run
lasts from the begin of its first process to the end of its last one.

With --follow it goes on, over files as they appear, until Ctrl-C: tables grow by the windows that
are whole, and alerts (a line each, and a retained message below $SYS/analysis/alerts/ in the
network) say what deserves attention. Run again, it goes on where it ended, also after kill -9.

examples:
  hbroker analyze .hbroker/home/telemetry --out analysis
  hbroker analyze .hbroker/home/telemetry --out analysis --window 60 --json
  hbroker analyze .hbroker/home/telemetry --out analysis --since 30m
  hbroker analyze .hbroker/home/telemetry --out analysis --run 2026-03-01T12:00
  hbroker analyze s3a://bucket/telemetry --out s3a://bucket/analysis \\
      --master spark://host:7077 --conf spark.hadoop.fs.s3a.endpoint=… \\
      --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0
  hbroker analyze --follow .hbroker/home/telemetry --out load --alert-busy 0.5,0.8
  mosquitto_sub -t '$SYS/analysis/#' -v           beside it, through a gateway

--json prints {source, runs: [{begin, end, processes}], left_out: [{begin, end, processes}], since,
  until, out, report, made_at, begin, end, window_s, files, rows: {topics, nodes},
  skipped: [{path, reason}], imbalance: {role: {nodes, load, largest, mean, max_over_mean,
  variation, gini, jain}}, dropped, lost, accounts_agree, tables, plan: {file,
  max_over_mean: [before, after], moves: [{step, subtree, source, target, merged, load}],
  nodes: [{node, capacity, before, after, subtrees}]}}
--follow --json prints a line for each event: {event: "files", taken, rows, skipped: [{path,
  reason}]}, {event: "windows", begin, end, window_s, processes, imbalance: [{role, window_start,
  nodes, load, max_over_mean, …}]}, {event: "late", windows}, and {event: "alert", topic, alert,
  role, node, state, severity, value, threshold, window_start, window_s}

exit codes: 0 done, 1 failed (no telemetry, no Java, no Spark), 2 wrong flags, 130 interrupted
"""

_WHEN: Final = Value("when", when)
_SELECTION: Final = ("since", "until", "run", "all_runs")


_selection_flag: Final = partial(
    click.option, cls=Option, heading="Which part of the telemetry (not with --follow)"
)


@command("analyze", _TEXT)
@click.argument(
    "directory", metavar="DIR", type=FILE, help="the telemetry: a path, or any address Spark reads"
)
@click.option("--out", required=True, type=FILE, metavar="OUT", help="where the tables and the report go")
@spark_flags
@click.option(
    "--window",
    type=WHOLE,
    metavar="SECONDS",
    help="length of a window (default: about a hundred in all; with --follow: 10)",
)
@click.option(
    "--top",
    type=WHOLE,
    default=100,
    metavar="N",
    show_default=True,
    help="rows of each ranking (not with --follow)",
)
@_selection_flag("--since", type=_WHEN, help=f"leave out what was before: {WHEN}")
@_selection_flag("--until", type=_WHEN, help="leave out what came then and later")
@_selection_flag("--run", type=Value("time", time), help="the run that went on at this time, not the latest")
@_selection_flag("--all-runs", is_flag=True, help="all runs, as if they were one")
@follow_flags
@json_flag
def analyze(
    directory: str,
    out: str,
    master: str | None,
    conf: tuple[tuple[str, str], ...],
    window: int | None,
    top: int,
    since: datetime | None,
    until: datetime | None,
    run: datetime | None,
    all_runs: bool,
    follow: bool,
    as_json: bool,
    **with_follow: Any,
) -> int:
    """Analyses the telemetry, and prints a summary."""
    if run is not None and all_runs:
        raise click.UsageError("--run does not go with --all-runs")
    job = Job(directory, out, master, dict(conf), as_json)
    if follow:
        refuse(("top", *_SELECTION), "does not go with --follow", "leave it out")
        return run_follow(job, window, FollowFlags(**with_follow))
    refuse(with_follow, "goes with --follow", "add --follow, or leave it out")
    with errors_of_spark():
        summary = _analyse(job, window, top, (since, until, run, all_runs))
    if as_json:
        print_json(summary)
    else:
        _print(summary)
    return DONE


def _analyse(job: Job, window: int | None, top: int, selection: _Selection) -> dict[str, Any]:
    from hbroker.spark_analysis.batch import Settings, analyse
    from hbroker.spark_analysis.data.runs import RunSelection
    from hbroker.spark_analysis.progress import Progression
    from hbroker.spark_analysis.session import interruptible, session
    from hbroker.spark_analysis.small import JAVA, SETTINGS, is_small

    settings = Settings(window, top, RunSelection(*selection))
    source, out, log = address_of(job.directory), address_of(job.out), spark_log(job.out)
    settings_of_spark, java = (SETTINGS, JAVA) if is_small(source) else ({}, ())
    conf = {**settings_of_spark, **job.conf}
    with session("hbroker analyze", job.master, log, conf, java) as spark:
        progress = Progression(spark)
        return interruptible(spark, lambda: analyse(spark, source, out, settings, progress))


def _print(summary: dict[str, Any]) -> None:
    columns = ("nodes", "load", "max_over_mean", "variation", "gini", "jain")
    rows = [
        [role, *(_figure(spread[name]) for name in columns)] for role, spread in summary["imbalance"].items()
    ]
    print_table(["role", *columns], rows, numbers=columns)
    print()
    if summary["left_out"]:
        count = len(summary["left_out"])
        runs = f"{count} other run{'s' if count > 1 else ''} of the network {'are' if count > 1 else 'is'}"
        print(f"{runs} left out: --all-runs takes all of them, --run TIME the one of that time")
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
