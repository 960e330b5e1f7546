"""`python -m bench.pythons`: what a message costs in Python, hbroker's client beside those of other brokers.

One publisher and one subscriber, each a process, use one topic. Both are on one CPU, the broker on another.
Rounds of all libraries alternate. A library or a broker that is not installed is left out, and reported.
docs/benchmarks.md says what the figures mean.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from bench.command import (
    broker_and_load_cpus,
    command_line,
    list_of,
    policy_of,
    run_series,
    timing_flags,
)
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
    not_installed,
    rate_of,
    rounds_of,
    table,
)
from bench.results.standings import FIGURES, PAGE, with_section
from bench.series import Contestant, Series

_WINDOW: Final = 4_096


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and prints or writes. Returns the exit code of `run_series`."""
    asked = _parser().parse_args(arguments)
    broker_cpus, load_cpus = broker_and_load_cpus()
    wanted = [one for one in LIBRARIES if asked.only is None or one.name in asked.only]
    series, left_out = series_of(wanted, asked.qos, asked.window, load_cpus)
    code = run_series(series, policy_of(asked, broker_cpus))
    command = command_line("bench.pythons", arguments)
    reported = {"command": command, **as_json(series, left_out)}
    text = as_text(series, left_out, command, own_cost_us())
    print(json.dumps(reported, indent=2) if asked.json else text)
    if asked.write:
        page = with_section(PAGE.read_text("utf-8"), "pythons", text)
        (FIGURES / "pythons.json").write_text(json.dumps(reported, indent=1) + "\n", "utf-8")
        PAGE.write_text(page, "utf-8")
    return code


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
    return series, [not_installed(f"{one.name}, or its broker,") for one in libraries if one not in here]


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
        *(_percent(one, name) for name in ("broker_cpu", "generator_cpu")),
        limit_of(one).replace("load", "ends"),
        mishaps_of(one),
        rounds_of(one),
    ]


def _microseconds(one: Series, name: str) -> str:
    spread = one.spread(attrgetter(name))
    return "-" if spread is None else f"{spread.median:.2f} ({spread.least:.2f}-{spread.most:.2f})"


def _percent(one: Series, name: str) -> str:
    spread = one.spread(attrgetter(name))
    return "-" if spread is None else f"{spread.median:.0%}"


def _parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = timing_flags("bench.pythons", __doc__.partition(": ")[2].partition("\n")[0])
    parser.add_argument("--qos", type=list_of(range(2)), default=[0, 1], help="0, 1 or 0,1 (the default)")
    parser.add_argument(
        "--window",
        type=_window,
        default=_WINDOW,
        help=f"messages under way, {BURST} at least (default {_WINDOW})",
    )
    parser.add_argument(
        "--only",
        type=_names,
        metavar="NAMES",
        help=f"who takes part, with semicolons between: some of {'; '.join(one.name for one in LIBRARIES)}",
    )
    parser.add_argument(
        "--write", action="store_true", help="put it into docs/benchmarks.md and docs/figures"
    )
    return parser


def _window(text: str) -> int:
    if (window := int(text)) < BURST:
        raise argparse.ArgumentTypeError(f"{BURST} at least")
    return window


def _names(text: str) -> list[str]:
    asked = text.split(";")
    if unknown := set(asked) - {one.name for one in LIBRARIES}:
        raise argparse.ArgumentTypeError(f"nobody is called {'; '.join(sorted(unknown))}")
    return asked


if __name__ == "__main__":
    sys.exit(main())
