"""What it costs to seal datagrams: `python -m bench.sealed`.

One node that seals and one that does not take turns, on a path with Ethernet's MTU. Counted are messages for
each CPU-second of the node, and at a fixed rate the latency. docs/benchmarks.md has the results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Final

import click

from bench.command import broker_and_load_cpus, command_line, policy_options, run_series
from bench.contestants import narrow
from bench.contestants.networks import Node
from bench.plan import Plan
from bench.results.report import as_json, as_text
from bench.rounds import Round, Timing, measure_generated
from bench.series import Contestant, Policy, Series
from hbroker.bench.brokers import security_flags

_ETHERNET: Final = 1_500
_PAIRS: Final = 8
_WINDOW: Final = 4_096


@dataclass(frozen=True, slots=True)
class Goal:
    """A load, and the least part of the messages that a node in the clear handles in the same CPU time.
    `least`: None: the latency is compared."""

    name: str
    plan: Callable[[frozenset[int]], Plan]
    least: float | None


GOALS: Final = (
    Goal("many messages a datagram, QoS 0", lambda cpus: Plan(_PAIRS, 0, _WINDOW, None, cpus), 0.75),
    Goal("many messages a datagram, QoS 1", lambda cpus: Plan(_PAIRS, 1, _WINDOW, None, cpus), 0.75),
    Goal("one message a datagram, QoS 0", lambda cpus: Plan(_PAIRS, 0, _PAIRS, None, cpus), 0.6),
    Goal("2,000 messages a second", lambda cpus: Plan(1, 0, _WINDOW, 2_000, cpus, often=3), None),
)
MOST_LATER_US: Final = 3.0
"""How much later a message may arrive (p50)."""


class SealedNode(Node):
    """One node that owns every topic, and seals."""

    name = "hbroker sealed"

    def flags(self, directory: Path) -> list[str]:
        return list(security_flags(directory))


@click.command
@policy_options()
def main(policy: Policy, *, in_json: bool) -> None:
    """Measures a node that seals beside one that does not.

    Exit codes: 0 done, 1 a node failed, 130 interrupted.
    """
    if (obstacle := narrow.obstacle()) is not None:
        sys.exit(obstacle)
    _, cpus = broker_and_load_cpus()
    nodes = [Contestant.of(node, _measure) for node in (Node(), SealedNode())]
    pairs = [(goal, [Series(node, goal.plan(cpus)) for node in nodes]) for goal in GOALS]
    series = [one for _, pair in pairs for one in pair]
    code = run_series(series, policy)
    if in_json:
        print(json.dumps({"command": command_line("bench.sealed"), **as_json(series, [])}, indent=2))
    else:
        print(f"`{command_line('bench.sealed')}`\n\n{as_text(series, [])}\n")
        for goal, (clear, sealed) in pairs:
            print(f"- {goal.name}: {_result(goal, clear, sealed)}")
    sys.exit(code)


def _measure(node: Node, plan: Plan, timing: Timing, broker_cpus: frozenset[int]) -> Round:
    return narrow.with_mtu(_ETHERNET, partial(measure_generated, node, plan, timing, broker_cpus))


def _result(goal: Goal, clear: Series, sealed: Series) -> str:
    if goal.least is None:
        before, after = (_median_latency(one.quiet) for one in (clear, sealed))
        if before is None or after is None:
            return "not measured"
        return f"p50 {before:.1f} and {after:.1f} µs (goal: {MOST_LATER_US:g} µs more at the most)"
    rates = [one.spread(attrgetter("delivered_per_cpu_s")) for one in (clear, sealed)]
    if rates[0] is None or rates[1] is None:
        return "not measured"
    return f"{rates[1].median / rates[0].median:.2f} x (goal: {goal.least:g})"


def _median_latency(rounds: Sequence[Round]) -> float | None:
    times = sorted(round.latency_us["p50"] for round in rounds if round.latency_us is not None)
    return times[len(times) // 2] if times else None


if __name__ == "__main__":
    main()
