"""What measurements share: their options, and the run itself."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from math import inf
from typing import Any, Final, TypeAlias

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from bench.results.report import progress_line
from bench.rounds import Timing
from bench.series import Policy, Series, run_all
from hbroker.bench.launching import end_strays
from hbroker.bench.process import open_many_files

Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]

_INTERRUPTED: Final = 130


def round_options(*, rounds: int = 5, duration: float = 2.0, warm_up: float = 0.7) -> Decorator:
    """The options of every measurement: number and length of its rounds. The arguments are the defaults."""

    def decorate(main: Callable[..., None]) -> Callable[..., None]:
        for option in (
            click.option("--warm-up", default=warm_up, show_default=True, help="Seconds before each."),
            click.option("--duration", default=duration, show_default=True, help="Seconds of each round."),
            click.option("--rounds", default=rounds, show_default=True, help="Those that count."),
        ):
            main = option(main)
        return main

    return decorate


def policy_options(most_s: float = inf) -> Decorator:
    """As `round_options`, with `--json`, and with options for rounds that must be undisturbed.

    The command receives a `policy` in place of all but `in_json`.
    """

    def decorate(main: Callable[..., None]) -> Callable[..., None]:
        @round_options()
        @click.option("--others", default=0.1, show_default=True, help="Share of a CPU that others may use.")
        @click.option(
            "--patience",
            default=120.0,
            show_default=True,
            help="Seconds to wait for a quiet machine, in all.",
        )
        @click.option(
            "--most",
            default=most_s,
            show_default=True,
            metavar="SECONDS",
            help="Begin no round after so long.",
        )
        @click.option("--json", "in_json", is_flag=True, help="Print every round as JSON.")
        @wraps(main)
        def with_policy(
            *,
            rounds: int,
            duration: float,
            warm_up: float,
            others: float,
            patience: float,
            most: float,
            **options: Any,
        ) -> None:
            policy = Policy(
                rounds=rounds,
                timing=Timing(warm_up, duration),
                broker_cpus=broker_and_load_cpus()[0],
                most_others=others,
                patience_s=patience,
                most_s=most,
            )
            main(policy=policy, **options)

        return with_policy

    return decorate


write_option: Final = click.option(
    "--write", is_flag=True, help="Put it into docs/benchmarks.md and docs/figures."
)


def broker_and_load_cpus() -> tuple[frozenset[int], frozenset[int]]:
    """One CPU for the broker and one for the load. Raises SystemExit with a message if there are not two."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("two CPUs are needed: one for the broker, one for the load")
    return frozenset(cpus[:1]), frozenset(cpus[1:2])


def command_line(name: str) -> str:
    """The command line of this process, which runs the measurement `name`."""
    return shlex.join(["python", "-m", name, *sys.argv[1:]])


def run_series(series: Sequence[Series], policy: Policy) -> int:
    """Runs the rounds, and reports each. Returns the exit code: 0 done, 1 a broker failed, 130
    interrupted."""
    open_many_files()
    # On SIGTERM it also ends the processes that it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _show_rounds(series, policy)
    except KeyboardInterrupt:
        end_strays()
        return _INTERRUPTED
    return 1 if any(one.failures for one in series) else 0


def _show_rounds(series: Sequence[Series], policy: Policy) -> None:
    """Runs the rounds, with a line for each on standard error; on a terminal with a bar below them."""
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        auto_refresh=False,  # A thread that draws would disturb the rounds.
        transient=True,
    )
    task = bar.add_task("", total=policy.rounds * sum(one.plan.often for one in series))
    with bar:
        for number, (one, round) in enumerate(run_all(series, policy), 1):
            console.print(f"round {number}: {progress_line(one, round)}")
            bar.update(task, completed=sum(len(each.quiet) for each in series), refresh=True)
