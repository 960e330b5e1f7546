"""`make bench`: hbroker beside its peers and beside the kernel's own limit, in one run.

Loads of 64-byte messages: eight pairs at QoS 0 and 1, one topic with a thousand subscribers, eight publishers
on one topic, and the latency at a fixed rate. The broker has CPU 0 and the load CPU 1. Rounds of all
contestants alternate. A peer that is not available is left out, and reported. docs/benchmarks.md says what
the figures mean.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from bench.apart import Ruler
from bench.command import broker_and_load_cpus, command_line, policy_options, run_series, write_option
from bench.contestants import kernel, narrow, zenoh
from bench.contestants.networks import Gateway, Node
from bench.contestants.peers import Mosquitto, Nats, NatsCore
from bench.contestants.zenoh import Zenoh, measure_zenoh
from bench.plan import Plan
from bench.results.standings import Standings, publish
from bench.rounds import Round, Timing, measure_generated
from bench.series import Contestant, Policy, Series

_WINDOW: Final = 4_096
_FAN_WINDOW: Final = 64
"""Messages in flight to many subscribers: each message is that number of copies."""
_RATE: Final = 2_000
_OFTEN: Final = 3
"""Times the rounds of other loads: the tail of the latency differs from launch to launch."""
_ETHERNET: Final = 1_500
_MOST_S: Final = 1_800.0

LOADS: Final[dict[str, Callable[[frozenset[int]], Plan]]] = {
    "pairs-0": lambda cpus: Plan(8, 0, _WINDOW, None, cpus),
    "pairs-1": lambda cpus: Plan(8, 1, _WINDOW, None, cpus),
    "fanout": lambda cpus: Plan(1, 0, _FAN_WINDOW, None, cpus, subscribers=1_000),
    "fanin": lambda cpus: Plan(1, 0, _WINDOW, None, cpus, publishers=8),
    "latency": lambda cpus: Plan(1, 0, _WINDOW, _RATE, cpus, often=_OFTEN),
}
_ALL: Final = frozenset(LOADS)
_QOS_0: Final = _ALL - {"pairs-1"}


def _loads(text: str) -> frozenset[str]:
    asked = frozenset(text.split(","))
    if unknown := asked - LOADS.keys():
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: none of {', '.join(LOADS)}")
    return asked


@click.command
@policy_options(_MOST_S)
@click.option("--loads", type=_loads, default=",".join(LOADS), show_default=True, metavar="LOADS")
@click.option(
    "--only",
    metavar="NAMES",
    help="Who takes part, as the table calls them, with semicolons between.  [default: all]",
)
@click.option(
    "--apart",
    default=2.0,
    show_default=True,
    metavar="TIMES",
    help="In a round that counts the two CPUs may be so many times as far apart as in that where they "
    "were nearest. inf: as far as they will.",
)
@write_option
def main(
    policy: Policy, loads: frozenset[str], only: str | None, apart: float, *, in_json: bool, write: bool
) -> None:
    """Measures hbroker beside its peers and beside the kernel's own limit.

    Exit codes: 0 done, 1 a broker failed, 130 interrupted.
    """
    broker_cpus, load_cpus = broker_and_load_cpus()
    with TemporaryDirectory(prefix="hbroker-bench-") as directory:
        ruler = Ruler.build(Path(directory), (min(broker_cpus), min(load_cpus)))
        field = _field(Path(directory))
        names = [entry.contestant.name for entry in field]
        taking_part = names if only is None else only.split(";")
        if unknown := set(taking_part).difference(names):
            sys.exit(f"{', '.join(sorted(unknown))}: none of {', '.join(names)}")
        field = [entry for entry in field if entry.contestant.name in taking_part and entry.loads & loads]
        series, left_out = _series(field, loads, load_cpus)
        if ruler:
            policy = replace(policy, apart=ruler.measure, most_apart=apart)
        code = run_series(series, policy)
    standings = Standings(series, left_out, command_line("bench.contest"))
    print(json.dumps(standings.as_json(), indent=2) if in_json else standings.as_text())
    if write:
        publish(standings)
    sys.exit(code)


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant, and the loads that make sense for it.

    `prepare`: builds what it needs; returns why it cannot take part, or None.
    """

    contestant: Contestant
    loads: frozenset[str]
    prepare: Callable[[], str | None] = lambda: None


def _field(directory: Path) -> list[Entry]:
    """All possible contestants."""
    narrowed = Contestant.of(Node(), _measure_narrowed, f"hbroker, MTU {_ETHERNET:,}")
    limit = kernel.Limit(directory)
    return [
        Entry(Contestant.of(Node(), measure_generated), _ALL),
        Entry(narrowed, frozenset({"pairs-0"}), narrow.obstacle),
        Entry(Contestant.of(Gateway(), measure_generated, "hbroker gateway"), _ALL - {"fanin"}),
        _installed(Contestant.of(Mosquitto(), measure_generated), _ALL),
        _installed(Contestant.of(NatsCore(), measure_generated), _QOS_0),
        _installed(Contestant.of(Nats(), measure_generated, "nats-server MQTT"), _ALL),
        Entry(Contestant.of(Zenoh("tcp"), measure_zenoh), _QOS_0, zenoh.built),
        Entry(Contestant.of(Zenoh("udp"), measure_zenoh), _QOS_0, zenoh.built),
        Entry(limit.contestant("kernel"), frozenset({"pairs-0", "latency"}), limit.built),
    ]


def _series(
    field: Sequence[Entry], loads: frozenset[str], load_cpus: frozenset[int]
) -> tuple[list[Series], list[str]]:
    """The series, load by load, so that rounds that are compared run next to each other; and which
    contestants are left out, and why."""
    obstacles = {entry.contestant.name: entry.prepare() for entry in field}
    series = [
        Series(entry.contestant, plan(load_cpus))
        for load, plan in LOADS.items()
        for entry in field
        if load in entry.loads & loads and obstacles[entry.contestant.name] is None
    ]
    return series, [f"{name}: not measured: {why}" for name, why in obstacles.items() if why is not None]


def _installed(contestant: Contestant, loads: frozenset[str]) -> Entry:
    return Entry(contestant, loads, lambda: None if contestant.version() else "it is not installed")


def _measure_narrowed(broker: Node, plan: Plan, timing: Timing, broker_cpus: frozenset[int]) -> Round:
    return narrow.with_mtu(_ETHERNET, partial(measure_generated, broker, plan, timing, broker_cpus))


if __name__ == "__main__":
    main()
