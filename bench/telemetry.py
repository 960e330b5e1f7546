"""What telemetry costs: the same load with it and without, one round beside the other.

A node with eight pairs at QoS 0 and 1, a node with 10,000 topics that come in turn, and a gateway with its
owner. What is compared is the broker's CPU time for each message. Rounds are long enough for files to be
written: see docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.brokers import Broker
from bench.networks import Gateway, Node
from bench.plan import Plan
from bench.rounds import Round, Timing, measure_generated
from hbroker.bench.launching import NoAnswer

_TOPICS: Final = 10_000
_WINDOW: Final = 4_096


class RecordedNode(Node):
    """A node that writes telemetry."""

    def flags(self, directory: Path) -> list[str]:
        return ["--telemetry", str(directory / "telemetry")]


class QuietGateway(Gateway):
    """An owner and a gateway that write none."""

    def flags(self) -> list[str]:
        return ["--no-telemetry"]


_LOADS: Final[tuple[tuple[str, Broker, Broker, int, int, int], ...]] = (
    ("node, 8 pairs, QoS 0", Node(), RecordedNode(), 8, 0, 1),
    ("node, 8 pairs, QoS 1", Node(), RecordedNode(), 8, 1, 1),
    ("node, 10,000 topics, QoS 0", Node(), RecordedNode(), 1, 0, _TOPICS),
    ("gateway, 8 pairs, QoS 0", QuietGateway(), Gateway(), 8, 0, 1),
    ("gateway, 8 pairs, QoS 1", QuietGateway(), Gateway(), 8, 1, 1),
)
"""What is measured: without telemetry, and with it; pairs, QoS, and topics of each, too many to be remembered
or one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints a table. Returns the exit code: 0 done, 1 a broker failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.telemetry", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="of each load, with and without (default 5)")
    parser.add_argument("--duration", type=float, default=11.0, help="seconds of each round (default 11)")
    parser.add_argument("--only", default="", help="loads whose name holds this")
    asked = parser.parse_args(arguments)
    cpus = sorted(os.sched_getaffinity(0))
    timing = Timing(1.0, asked.duration)
    print(
        "| load | µs of CPU for a message, without | with | more, median (each pair of rounds) | RSS, MiB |"
    )
    print("|---|---|---|---|---|", flush=True)
    for name, without, with_it, pairs, qos, topics in _LOADS:
        if asked.only not in name:
            continue
        plan = Plan(pairs, qos, _WINDOW, None, frozenset(cpus[1:2]), topics=topics)
        rounds = [(without, with_it) if number % 2 else (with_it, without) for number in range(asked.rounds)]
        found: dict[Broker, list[Round]] = {without: [], with_it: []}
        try:
            for broker in (broker for both in rounds for broker in both):
                found[broker].append(measure_generated(broker, plan, timing, frozenset(cpus[:1])))
        except NoAnswer as error:
            print(error, file=sys.stderr)
            return 1
        print(_row(name, found[without], found[with_it]), flush=True)
    return 0


def _row(name: str, without: list[Round], with_it: list[Round]) -> str:
    costs = [[1e6 / round.delivered_per_cpu_s for round in rounds] for rounds in (without, with_it)]
    ratios = [after / before - 1 for before, after in zip(*costs, strict=True)]
    each = " ".join(f"{ratio:+.1%}" for ratio in ratios)
    memory = " → ".join(
        f"{median(round.broker_rss_bytes for round in rounds) / 2**20:.0f}" for rounds in (without, with_it)
    )
    before, after = (median(values) for values in costs)
    return f"| {name} | {before:.3f} | {after:.3f} | {median(ratios):+.1%} ({each}) | {memory} |"


if __name__ == "__main__":
    sys.exit(main())
