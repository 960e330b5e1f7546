"""`make bench`: hbroker beside its peers and beside the kernel's own limit, in one run.

Loads of 64-byte messages: eight pairs at QoS 0 and 1, one topic with a thousand subscribers, eight publishers
on one topic, and the latency at a fixed rate. The broker has CPU 0 and the load CPU 1. Rounds of all
contestants alternate. A peer that is not available is left out, and reported. docs/benchmarks.md says what
the figures mean.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.apart import Ruler
from bench.command import broker_and_load_cpus, command_line, policy_of, run_series, timing_flags
from bench.contestants import kernel, narrow, zenoh
from bench.contestants.networks import Gateway, Node
from bench.contestants.peers import Mosquitto, Nats, NatsCore
from bench.contestants.zenoh import Zenoh, measure_zenoh
from bench.plan import Plan
from bench.results.standings import Standings, publish
from bench.rounds import Round, Timing, measure_generated
from bench.series import Contestant, Series

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and prints or writes the results. Returns the exit code of `run_series`."""
    asked = _parser().parse_args(arguments)
    broker_cpus, load_cpus = broker_and_load_cpus()
    with TemporaryDirectory(prefix="hbroker-bench-") as directory:
        ruler = Ruler.build(Path(directory), (min(broker_cpus), min(load_cpus)))
        field = _field(Path(directory))
        names = [entry.contestant.name for entry in field]
        if unknown := set(asked.only or ()).difference(names):
            sys.exit(f"{', '.join(sorted(unknown))}: none of {', '.join(names)}")
        series, left_out = _series(field, asked, load_cpus)
        policy = policy_of(asked, broker_cpus)
        code = run_series(
            series, replace(policy, apart=ruler.measure, most_apart=asked.apart) if ruler else policy
        )
    standings = Standings(series, left_out, command_line("bench.contest", arguments))
    print(json.dumps(standings.as_json(), indent=2) if asked.json else standings.as_text())
    if asked.write:
        publish(standings)
    return code


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
    field: Sequence[Entry], asked: argparse.Namespace, load_cpus: frozenset[int]
) -> tuple[list[Series], list[str]]:
    """The series, load by load, so that rounds that are compared run next to each other; and which
    contestants are left out, and why."""
    wanted = [
        entry
        for entry in field
        if (asked.only is None or entry.contestant.name in asked.only) and entry.loads & asked.loads
    ]
    obstacles = {entry.contestant.name: entry.prepare() for entry in wanted}
    series = [
        Series(entry.contestant, plan(load_cpus))
        for load, plan in LOADS.items()
        for entry in wanted
        if load in entry.loads & asked.loads and obstacles[entry.contestant.name] is None
    ]
    return series, [f"{name}: not measured: {why}" for name, why in obstacles.items() if why is not None]


def _installed(contestant: Contestant, loads: frozenset[str]) -> Entry:
    return Entry(contestant, loads, lambda: None if contestant.version() else "it is not installed")


def _measure_narrowed(broker: Node, plan: Plan, timing: Timing, broker_cpus: frozenset[int]) -> Round:
    return narrow.with_mtu(_ETHERNET, partial(measure_generated, broker, plan, timing, broker_cpus))


def _parser() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = timing_flags("bench.contest", __doc__.partition("\n")[0])
    parser.set_defaults(most=_MOST_S)
    parser.add_argument(
        "--loads",
        type=lambda text: frozenset(_known(text, LOADS)),
        default=_ALL,
        help=f"some of {', '.join(LOADS)} (default: all)",
    )
    parser.add_argument(
        "--only",
        type=lambda text: text.split(";"),
        metavar="NAMES",
        help="who takes part, as the table calls them, with semicolons between (default: all)",
    )
    parser.add_argument(
        "--apart",
        type=float,
        default=2.0,
        metavar="TIMES",
        help="in a round that counts the two CPUs may be so many times as far apart as in that where they "
        "were nearest (default 2; inf: as far as they will)",
    )
    parser.add_argument(
        "--write", action="store_true", help="put it into docs/benchmarks.md and docs/figures"
    )
    return parser


def _known(text: str, names: Collection[str]) -> list[str]:
    asked = text.split(",")
    if unknown := set(asked) - set(names):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: none of {', '.join(names)}")
    return asked


if __name__ == "__main__":
    sys.exit(main())
