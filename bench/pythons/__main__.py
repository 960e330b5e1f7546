"""`python -m bench.pythons`: what a message costs in Python, hbroker's client beside those of other brokers.

One publisher and one subscriber, each a process, use one topic. Both are on one CPU, the broker on another.
Rounds of all libraries alternate. A library or a broker that is not installed is left out, and reported.
docs/benchmarks.md says what the figures mean.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Final

import click

from bench.command import broker_and_load_cpus, command_line, policy_options, run_series, write_option
from bench.plan import Plan
from bench.pythons.board import BURST, own_cost_us
from bench.pythons.libraries import LIBRARIES, Library
from bench.pythons.rounds import measure_python
from bench.results.report import (
    as_json,
    faults_of,
    limit_of,
    load_of,
    machine,
    mishaps_of,
    percent_of,
    rate_of,
    rounds_of,
    table,
)
from bench.results.standings import FIGURES, PAGE, with_section
from bench.series import Contestant, Policy, Series

_WINDOW: Final = 4_096


def _libraries(text: str) -> list[Library]:
    asked = text.split(";")
    if unknown := set(asked) - {one.name for one in LIBRARIES}:
        raise click.BadParameter(f"nobody is called {'; '.join(sorted(unknown))}")
    return [one for one in LIBRARIES if one.name in asked]


@click.command
@policy_options()
@click.option("--qos", type=click.Choice(["0", "1", "0,1"]), default="0,1", show_default=True)
@click.option(
    "--window",
    type=click.IntRange(BURST),
    default=_WINDOW,
    show_default=True,
    help="Messages under way.",
)
@click.option(
    "--only",
    type=_libraries,
    default=";".join(one.name for one in LIBRARIES),
    show_default=True,
    metavar="NAMES",
    help="Who takes part, with semicolons between.",
)
@write_option
def main(
    policy: Policy, qos: str, window: int, only: Sequence[Library], *, in_json: bool, write: bool
) -> None:
    """Measures what a message costs in Python, with hbroker's client and with those of other brokers.

    Exit codes: 0 done, 1 a broker failed, 130 interrupted.
    """
    _, load_cpus = broker_and_load_cpus()
    series, left_out = series_of(only, list(map(int, qos.split(","))), window, load_cpus)
    code = run_series(series, policy)
    command = command_line("bench.pythons")
    reported = {"command": command, **as_json(series, left_out)}
    text = as_text(series, left_out, command, own_cost_us())
    print(json.dumps(reported, indent=2) if in_json else text)
    if write:
        page = with_section(PAGE.read_text("utf-8"), "pythons", text)
        (FIGURES / "pythons.json").write_text(json.dumps(reported, indent=1) + "\n", "utf-8")
        PAGE.write_text(page, "utf-8")
    sys.exit(code)


def series_of(
    libraries: Sequence[Library], qos: Sequence[int], window: int, load_cpus: frozenset[int]
) -> tuple[list[Series], list[str]]:
    """The series, QoS by QoS, so that rounds that are compared run next to each other; and what is left out,
    and why."""
    here = [one for one in libraries if one.version() is not None]
    series = [
        Series(
            Contestant(one.name, one.version, partial(measure_python, one)),
            Plan(1, level, window, None, load_cpus),
        )
        for level in qos
        for one in here
        if level in one.qos
    ]
    left_out = [one.name for one in libraries if one not in here]
    return series, [f"{name}, or its broker, is not installed: not measured" for name in left_out]


def as_text(
    series: Sequence[Series], left_out: Sequence[str], command: str, own_us: tuple[float, float]
) -> str:
    """The table and the remarks about it, in Markdown. `own_us`: of `own_cost_us`."""
    versions = dict.fromkeys(one.contestant.version() for one in series)
    own = "Of that the measurement's own: {:.2f} µs at the publisher, {:.2f} µs at the subscriber."
    parts = [
        f"`{command}`",
        machine(),
        "; ".join(filter(None, versions)),
        table(_HEAD, [_row(one) for one in series]) if series else "",
        own.format(*own_us),
        faults_of(series),
        *(
            f"{one.contestant.name}, {load_of(one.plan)}: {one.failures[-1]}"
            for one in series
            if one.failures
        ),
        *left_out,
    ]
    return "\n\n".join(part for part in parts if part)


_HEAD: Final = (
    "library",
    "load",
    "msg/s",
    "publisher µs/msg",
    "subscriber µs/msg",
    "broker µs/msg",
    "broker CPU",
    "ends CPU",
    "limit",
    "lost, doubled, disordered",
    "rounds",
)


def _row(one: Series) -> list[str]:
    return [
        one.contestant.name,
        load_of(one.plan).removeprefix("1 pair, "),
        rate_of(one.spread(attrgetter("delivered_per_s"))),
        *(_microseconds(one, name) for name in ("publisher_us", "subscriber_us", "broker_us")),
        *(percent_of(one, name) for name in ("broker_cpu", "generator_cpu")),
        limit_of(one).replace("load", "ends"),
        mishaps_of(one),
        rounds_of(one),
    ]


def _microseconds(one: Series, name: str) -> str:
    spread = one.spread(attrgetter(name))
    return "-" if spread is None else f"{spread.median:.2f} ({spread.least:.2f}-{spread.most:.2f})"


if __name__ == "__main__":
    main()
