"""`hbroker analyze --follow`: the analysis of telemetry as it is written, with alerts.

Alerts go to standard output and, as retained messages, to the network. Progress goes to standard error. With
`--json` everything goes to standard output, one object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from hbroker.cli.analysis.alerts import PREFIX, Announcer
from hbroker.cli.analysis.spark import address_of, errors_of_spark, spark_log
from hbroker.cli.exits import DONE
from hbroker.cli.flags import address, not_negative, positive, whole
from hbroker.cli.output import Style, print_json_line, styled
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.spark_analysis.data.intake import Taken
    from hbroker.spark_analysis.follow import Closed, Settings
    from hbroker.spark_analysis.measures.alerts import Alert, Rules, Thresholds

_OWN: Final = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        *("once", "late", "every", "root", "no_publish"),
        *("alert_imbalance", "alert_busy", "alert_drops", "alert_after", "alert_load"),
    )
}

_OF_BATCH: Final = {
    "top": "--top",
    "since": "--since",
    "until": "--until",
    "at": "--run",
    "all_runs": "--all-runs",
}

# A micro-batch has a few rows of each node and runs many small plans: compiling them takes longer than it
# saves.
_FOR_SMALL_BATCHES: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declares `--follow` and the flags that require it. Each is None if it is not given."""
    group = parser.add_argument_group("with --follow")
    group.add_argument("--follow", action="store_true", help="go on, over files as they appear, until Ctrl-C")
    group.add_argument(
        "--once", action="store_true", default=None, help="take what is new since the last run, and end"
    )
    group.add_argument(
        "--late",
        type=whole,
        metavar="SECONDS",
        help="how much later than the latest an interval may come and count (default: 30)",
    )
    group.add_argument(
        "--every", type=positive, metavar="SECONDS", help="how often to look for files (default: 10)"
    )
    group.add_argument(
        "--root",
        type=address,
        metavar="HOST:PORT",
        help="the network that hears the alerts (default: $HBROKER_ROOT, or 127.0.0.1:7700)",
    )
    group.add_argument("--no-publish", action="store_true", default=None, help="tell no network")
    for name, what, default in (
        ("imbalance", "largest over mean load", "2,3"),
        ("busy", "CPU time over that of all workers", "0.7,0.9"),
        ("drops", "dropped over handled or dropped", "0.01,0.1"),
    ):
        group.add_argument(
            f"--alert-{name}",
            type=_pair,
            metavar="WARNING,CRITICAL",
            help=f"{what} that raises an alert (default: {default})",
        )
    group.add_argument(
        "--alert-after",
        type=whole,
        metavar="N",
        help="windows in a row that raise an alert, or clear it (default: 3)",
    )
    group.add_argument(
        "--alert-load",
        type=not_negative,
        metavar="RATE",
        help="messages a second below which imbalance and drops say nothing (default: 10)",
    )


def refuse_without(options: argparse.Namespace) -> None:
    """Raises ConfigError if a flag is given that requires `--follow`."""
    _refuse(options, _OWN, "goes with --follow", "add --follow, or leave it out")


def run(options: argparse.Namespace) -> int:
    """Follows until Ctrl-C, or analyses once (`--once`). Raises LocalError, ConfigError,
    KeyboardInterrupt."""
    _refuse(options, _OF_BATCH, "does not go with --follow", "leave it out")
    announcer = nullcontext() if options.no_publish else Announcer(_root(options), _say)
    with announcer as reported, errors_of_spark():
        _follow(options, reported)
    return DONE


def _follow(options: argparse.Namespace, announcer: Announcer | None) -> None:
    from hbroker.spark_analysis.follow import Follower
    from hbroker.spark_analysis.session import interruptible, session, tasks_of_cpu

    settings = _settings(options)
    audience = (_Events if options.json else _Lines)(announcer, settings.window_s)
    over = threading.Event()
    conf = {**_FOR_SMALL_BATCHES, **dict(options.conf)}
    with session("hbroker analyze --follow", options.master, spark_log(options.out), conf) as spark:
        tasks_of_cpu(spark, 1)

        def work() -> None:
            source, out = address_of(options.directory), address_of(options.out)
            follower = Follower(spark, source, out, settings, audience)
            if options.once:
                follower.run_once()
            else:
                follower.run(over)

        interruptible(spark, work, None if options.once else over.set)


class _Audience:
    """Receives the events of the follower. Subclasses print them."""

    def __init__(self, announcer: Announcer | None, window_s: int) -> None:
        self._announcer = announcer
        self._window = timedelta(seconds=window_s)

    def stands(self, reported: Sequence[Alert]) -> None:
        """Publishes the alerts of an earlier run again: they may not have been published."""
        self._announce(reported)

    def _announce(self, alerts: Iterable[Alert]) -> None:
        if self._announcer is not None:
            states = {
                _topic(alert): (json.dumps(asdict(alert)).encode(), _in_force(alert)) for alert in alerts
            }
            self._announcer.tell(states)


class _Lines(_Audience):
    """Prints lines for a person."""

    def took(self, taken: Taken) -> None:
        """Prints a line for each skipped file."""
        for file in taken.skipped:
            _say(f"skipped {file.path}: {file.reason}")

    def closed(self, closed: Closed) -> None:
        """Prints a line for the closed windows, and one for each alert that changed."""
        begin, end = (f"{at:%Y-%m-%d %H:%M:%S}" for at in (closed.begin, closed.end + self._window))
        last = [row for row in closed.spread if row["window_start"] == closed.end]
        spread = ", ".join(
            f"{row['role']}s {row['load']:,} messages"
            + (f" at {row['max_over_mean']:.2f} of the mean" if row["max_over_mean"] else "")
            for row in last
        )
        _say(f"{begin} to {end[11:]} UTC  {closed.nodes} processes; last window: {spread}")
        for alert in closed.changed:
            print(_line(alert), flush=True)
        self._announce(closed.changed)

    def late(self, count: int) -> None:
        """Prints the number of windows whose late rows are in no table."""
        _say(f"late: {count} windows of a node had been closed when more of them came")


class _Events(_Audience):
    """Prints JSON objects for a program."""

    def took(self, taken: Taken) -> None:
        """Prints the event `files`."""
        skipped = [{"path": file.path, "reason": file.reason} for file in taken.skipped]
        print_json_line({"event": "files", "taken": taken.files, "rows": taken.rows, "skipped": skipped})

    def closed(self, closed: Closed) -> None:
        """Prints the event `windows`, and an `alert` for each one that changed."""
        spread = [{**row, "window_start": row["window_start"].isoformat()} for row in closed.spread]
        print_json_line(
            {
                "event": "windows",
                "begin": closed.begin.isoformat(),
                "end": (closed.end + self._window).isoformat(),
                "window_s": self._window.total_seconds(),
                "processes": closed.nodes,
                "imbalance": spread,
            }
        )
        for alert in closed.changed:
            print_json_line({"event": "alert", "topic": PREFIX + _topic(alert), **asdict(alert)})
        self._announce(closed.changed)

    def late(self, count: int) -> None:
        """Prints the event `late`."""
        print_json_line({"event": "late", "windows": count})


def _root(options: argparse.Namespace) -> str:
    try:
        root: str = options.root or address(os.environ.get("HBROKER_ROOT") or "127.0.0.1:7700")
    except argparse.ArgumentTypeError as error:
        remedy = "set it to HOST:PORT, or give --root"
        raise ConfigError(str(error), file="$HBROKER_ROOT", line=None, remedy=remedy) from error
    return root


def _settings(options: argparse.Namespace) -> Settings:
    from hbroker.spark_analysis.follow import Settings

    asked = {"window_s": options.window, "late_s": options.late, "every_s": options.every}
    return Settings(
        **{name: value for name, value in asked.items() if value is not None}, rules=_rules(options)
    )


def _rules(options: argparse.Namespace) -> Rules:
    from hbroker.spark_analysis.measures.alerts import Rules, Thresholds

    def thresholds(pair: tuple[float, float] | None) -> Thresholds | None:
        return None if pair is None else Thresholds(*pair)

    asked = {
        "imbalance": thresholds(options.alert_imbalance),
        "saturation": thresholds(options.alert_busy),
        "drops": thresholds(options.alert_drops),
        "after": options.alert_after,
        "least_rate": options.alert_load,
    }
    return Rules(**{name: value for name, value in asked.items() if value is not None})


def _topic(alert: Alert) -> str:
    """The topic of an alert below PREFIX."""
    return "/".join(alert.subject)


def _in_force(alert: Alert) -> bool:
    return alert.severity is not None


def _line(alert: Alert) -> str:
    of = f"of {alert.role} {alert.node}" if alert.subject[2:] else f"of {alert.role}s"
    value = "nothing measured" if alert.value is None else f"{alert.value:.3g}"
    what = f"{alert.alert} {of}: {value}, threshold {alert.threshold:g}"
    at = datetime.fromisoformat(alert.window_start).astimezone(UTC)
    if alert.severity is None:
        return f"{at:%H:%M:%S} {styled('cleared', Style.GOOD)}  {what}"
    return f"{at:%H:%M:%S} {styled(alert.severity, Style.BAD)}  {what}"


def _pair(text: str) -> tuple[float, float]:
    first, _, second = text.partition(",")
    warning, critical = positive(first), positive(second or first)
    if critical < warning:
        raise argparse.ArgumentTypeError(f"{text!r}: critical is less than warning")
    return warning, critical


def _refuse(options: argparse.Namespace, flags: Mapping[str, str], why: str, remedy: str) -> None:
    for name, flag in flags.items():
        if getattr(options, name) is not None:
            raise ConfigError(f"{flag} {why}", file="command line", line=None, remedy=remedy)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
