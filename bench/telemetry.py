"""What telemetry costs: the same load on a broker with it and on one without, slice by slice.

The brokers are a node with eight pairs at QoS 0 and 1, a node with 10,000 topics in rotation, and a gateway
with its owner. The compared value is the broker's CPU time for each message. Both brokers run at the same
time, and the load alternates between them every few seconds, so that changes of the machine's speed affect
both. Their memory layout differs from launch to launch, so there are several launches. See
docs/benchmarks.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Final

import click

from bench.command import broker_and_load_cpus
from bench.contestants.brokers import Broker
from bench.contestants.networks import Gateway, Node
from bench.plan import Plan
from bench.rounds import Round, Timing, up
from hbroker.bench.launching import NoAnswer

_TOPICS: Final = 10_000
_WINDOW: Final = 4_096
_WARM_UP_S: Final = 1.5
"""More than an interval: with a new load more messages are timed at first than later."""


class RecordedNode(Node):
    """A node that writes telemetry."""

    def flags(self, directory: Path) -> list[str]:
        return ["--telemetry", str(directory / "telemetry")]


class QuietGateway(Gateway):
    """An owner and a gateway that write no telemetry."""

    def flags(self) -> list[str]:
        return ["--no-telemetry"]


_LOADS: Final[tuple[tuple[str, Broker, Broker, int, int, int], ...]] = (
    ("node, 8 pairs, QoS 0", Node(), RecordedNode(), 8, 0, 1),
    ("node, 8 pairs, QoS 1", Node(), RecordedNode(), 8, 1, 1),
    ("node, 10,000 topics, QoS 0", Node(), RecordedNode(), 1, 0, _TOPICS),
    ("gateway, 8 pairs, QoS 0", QuietGateway(), Gateway(), 8, 0, 1),
    ("gateway, 8 pairs, QoS 1", QuietGateway(), Gateway(), 8, 1, 1),
)
"""The loads: the broker without telemetry and the one with it, pairs, QoS, and topics of each publisher (one,
or too many to be cached)."""


@click.command
@click.option("--launches", default=6, show_default=True, help="Of both brokers, for each load.")
@click.option("--slices", default=8, show_default=True, help="Of each broker in a launch.")
@click.option("--duration", default=2.0, show_default=True, help="Seconds of each slice.")
@click.option("--only", default="", metavar="TEXT", help="Loads whose name holds this.")
def main(launches: int, slices: int, duration: float, only: str) -> None:
    """Measures what telemetry costs, and prints a table. Exit codes: 0 done, 1 a broker failed."""
    broker_cpus, load_cpus = broker_and_load_cpus()
    timing = Timing(_WARM_UP_S, duration)
    print(
        "| load | µs of CPU for a message, without | with | more, mean ± standard error (each launch)"
        " | RSS, MiB |\n|---|---|---|---|---|",
        flush=True,
    )
    for name, without, with_it, pairs, qos, topics in _LOADS:
        if only not in name:
            continue
        plan = Plan(pairs, qos, _WINDOW, None, load_cpus, topics=topics)
        try:
            found = [_launch(without, with_it, plan, timing, broker_cpus, slices) for _ in range(launches)]
        except NoAnswer as error:
            print(error, file=sys.stderr)
            sys.exit(1)
        print(_row(name, found), flush=True)


Launch = tuple[list[Round], list[Round]]
"""Slices without telemetry and with it. Slices at the same index ran one after the other."""


def _launch(
    without: Broker, with_it: Broker, plan: Plan, timing: Timing, cpus: frozenset[int], slices: int
) -> Launch:
    """Runs both brokers side by side. Their order changes from slice to slice."""
    found: Launch = ([], [])
    with up(without, cpus) as quiet, up(with_it, cpus) as recorded:
        for number in range(slices):
            both = [(quiet, found[0]), (recorded, found[1])]
            for broker, rounds in both if number % 2 else reversed(both):
                rounds.append(broker.measure(plan, timing))
    return found


def _row(name: str, launches: Sequence[Launch]) -> str:
    ratios = [_ratio(launch) for launch in launches]
    error = stdev(ratios) / sqrt(len(ratios)) if len(ratios) > 1 else float("nan")
    each = " ".join(f"{exp(ratio) - 1:+.1%}" for ratio in ratios)
    without, with_it = ([round for launch in launches for round in launch[which]] for which in range(2))
    before, after = (median(map(_cost, rounds)) for rounds in (without, with_it))
    memory = " → ".join(
        f"{median(round.broker_rss_bytes for round in rounds) / 2**20:.0f}" for rounds in (without, with_it)
    )
    more = f"{exp(fmean(ratios)) - 1:+.1%} ± {error:.1%} ({each})"
    return f"| {name} | {before:.3f} | {after:.3f} | {more} | {memory} |"


def _ratio(launch: Launch) -> float:
    """The logarithm of the ratio of costs with and without telemetry: the median over the pairs of slices."""
    return median(log(_cost(after) / _cost(before)) for before, after in zip(*launch, strict=True))


def _cost(round: Round) -> float:
    """µs of the broker's CPU time for a message."""
    return 1e6 / round.delivered_per_cpu_s


if __name__ == "__main__":
    main()
