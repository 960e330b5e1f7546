"""`hbroker analyze --follow`: the analysis of telemetry as it is written, with alerts.

Alerts go to standard output and, as retained messages, to the network. Progress goes to standard error. With
`--json` everything goes to standard output, one object a line.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from hbroker.addresses import format_address
from hbroker.cli.analysis.alerts import PREFIX, Announcer
from hbroker.cli.analysis.spark import Job, address_of, errors_of_spark, spark_log
from hbroker.cli.commands import Option
from hbroker.cli.exits import DONE
from hbroker.cli.flags import ADDRESS, SECONDS, WHOLE, Value, all_of, not_negative, positive
from hbroker.cli.output import Style, print_json_line, styled
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.spark_analysis.data.intake import Taken
    from hbroker.spark_analysis.follow import Closed, Settings
    from hbroker.spark_analysis.measures.alerts import Alert

# A micro-batch has a few rows of each node and runs many small plans: compiling them takes longer than it
# saves.
_FOR_SMALL_BATCHES: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_WINDOW_S: Final = 10


def _pair(text: str) -> tuple[float, float]:
    first, _, second = text.partition(",")
    warning, critical = positive(first), positive(second or first)
    if critical < warning:
        raise ValueError(f"{text!r}: critical is less than warning")
    return warning, critical


_flag: Final = partial(click.option, cls=Option, heading="With --follow", show_default=True)
_pair_flag: Final = partial(_flag, type=Value("warning,critical", _pair))

follow_flags: Final = all_of(
    _flag("--follow", is_flag=True, help="go on, over files as they appear, until Ctrl-C"),
    _flag("--once", is_flag=True, help="take what is new since the last run, and end"),
    _flag(
        "--late",
        type=WHOLE,
        default=30,
        metavar="SECONDS",
        help="how much later than the latest an interval may come and count",
    ),
    _flag("--every", type=SECONDS, default=10.0, help="how often to look for files"),
    _flag(
        "--root",
        type=ADDRESS,
        help="the network that hears the alerts (default: $HBROKER_ROOT, that of the context, or "
        "127.0.0.1:7700)",
    ),
    _flag("--no-publish", is_flag=True, help="tell no network"),
    _pair_flag("--alert-imbalance", default="2,3", help="largest over mean load that raises an alert"),
    _pair_flag(
        "--alert-busy", default="0.7,0.9", help="CPU time over that of all workers that raises an alert"
    ),
    _pair_flag(
        "--alert-drops", default="0.01,0.1", help="dropped over handled or dropped that raises an alert"
    ),
    _flag(
        "--alert-after",
        type=WHOLE,
        default=3,
        metavar="N",
        help="windows in a row that raise an alert, or clear it",
    ),
    _flag(
        "--alert-load",
        type=Value("rate", not_negative),
        default=10.0,
        help="messages a second below which imbalance and drops say nothing",
    ),
)
"""`--follow`, and the flags of `FollowFlags`."""


@dataclass(frozen=True, slots=True)
class FollowFlags:
    """The flags that require `--follow`."""

    once: bool
    late: int
    every: float
    root: str | None
    no_publish: bool
    alert_imbalance: tuple[float, float]
    alert_busy: tuple[float, float]
    alert_drops: tuple[float, float]
    alert_after: int
    alert_load: float

    def announcer(self) -> AbstractContextManager[Announcer | None]:
        """Publishes alerts, unless it is told to publish none. Raises ConfigError."""
        if self.no_publish:
            return nullcontext()
        from hbroker.runtime.address import parse_place

        try:
            root = self.root or format_address(parse_place(None))
        except ValueError as error:
            remedy = "set it to HOST:PORT, or give --root"
            raise ConfigError(str(error), file="$HBROKER_ROOT", remedy=remedy) from error
        return Announcer(root, _say)

    def settings(self, window_s: int | None) -> Settings:
        """The settings of the follower."""
        from hbroker.spark_analysis.follow import Settings
        from hbroker.spark_analysis.measures.alerts import Rules, Thresholds

        rules = Rules(
            imbalance=Thresholds(*self.alert_imbalance),
            saturation=Thresholds(*self.alert_busy),
            drops=Thresholds(*self.alert_drops),
            after=self.alert_after,
            least_rate=self.alert_load,
        )
        return Settings(window_s or _WINDOW_S, self.late, self.every, rules)


def follow(job: Job, window_s: int | None, flags: FollowFlags) -> int:
    """Follows until Ctrl-C, or analyses once (`--once`). Raises LocalError, ConfigError,
    KeyboardInterrupt."""
    with flags.announcer() as announcer, errors_of_spark():
        _follow(job, flags.settings(window_s), announcer, is_once=flags.once)
    return DONE


def _follow(job: Job, settings: Settings, announcer: Announcer | None, *, is_once: bool) -> None:
    from hbroker.spark_analysis.follow import Follower
    from hbroker.spark_analysis.session import interruptible, session, tasks_of_cpu

    reporter = (_JsonReporter if job.as_json else _TextReporter)(announcer, settings.window_s)
    over = threading.Event()
    conf = {**_FOR_SMALL_BATCHES, **job.conf}
    with session("hbroker analyze --follow", job.master, spark_log(job.out), conf) as spark:
        tasks_of_cpu(spark, 1)

        def work() -> None:
            follower = Follower(spark, address_of(job.directory), address_of(job.out), settings, reporter)
            if is_once:
                follower.run_once()
            else:
                follower.run(over)

        interruptible(spark, work, None if is_once else over.set)


class _Reporter:
    """Receives the events of the follower. Subclasses print them."""

    def __init__(self, announcer: Announcer | None, window_s: int) -> None:
        self._announcer = announcer
        self._window = timedelta(seconds=window_s)

    def restored(self, reported: Sequence[Alert]) -> None:
        """Publishes the alerts of an earlier run again: they may not have been published."""
        self._announce(reported)

    def _announce(self, alerts: Iterable[Alert]) -> None:
        if self._announcer is not None:
            states = {
                _topic(alert): (json.dumps(asdict(alert)).encode(), _in_force(alert)) for alert in alerts
            }
            self._announcer.tell(states)


class _TextReporter(_Reporter):
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


class _JsonReporter(_Reporter):
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


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
