"""`make bench`: a first figure for speed, beside mosquitto's in the same run.

Messages of 64 bytes from one publisher to one subscriber (a *pair*), as fast as the closed loop goes, and the
latency at a fixed rate. The broker has CPU 0 and the load CPU 1. See docs/benchmarks.md for what the figures
mean.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

from bench.brokers import BROKERS, Broker
from bench.load import BURST, Plan
from bench.report import as_json, as_text, progress_line
from bench.rounds import Timing
from bench.series import Policy, Series, run_all
from bench.transport import NoAnswer

_INTERRUPTED: Final = 130
_MOST_WINDOW: Final = 8_192
"""Half of the cycle by which the MQTT subscriber tells a message from one a cycle earlier."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns the exit code: 0 done, 1 a broker failed, 130 interrupted.

    What was found until an interrupt is printed.
    """
    flags = _flags().parse_args(arguments)
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        print("two CPUs are needed: one for the broker, one for the load", file=sys.stderr)
        return 1
    here = [broker for broker in BROKERS if broker.version() is not None]
    missing = [broker.name for broker in BROKERS if broker not in here]
    series = _series(flags, here, frozenset(cpus[1:2]))
    policy = Policy(
        rounds=flags.rounds,
        timing=Timing(flags.warm_up, flags.duration),
        broker_cpus=frozenset(cpus[:1]),
        most_others=flags.others,
        patience_s=flags.patience,
    )
    code = 0
    try:
        for number, (one, round) in enumerate(run_all(series, policy), 1):
            print(f"round {number}: {progress_line(one, round)}", file=sys.stderr, flush=True)
    except NoAnswer as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        code = _INTERRUPTED
    print(json.dumps(as_json(series, missing), indent=2) if flags.json else as_text(series, missing))
    return code


def _series(flags: argparse.Namespace, brokers: Sequence[Broker], load_cpus: frozenset[int]) -> list[Series]:
    """Plan by plan, and within each broker by broker, so that those that are compared run next to each
    other."""
    plans = [
        Plan(pairs, qos, flags.window, None, load_cpus) for qos, pairs in product(flags.qos, flags.pairs)
    ]
    if flags.rate:
        plans += [Plan(1, qos, flags.window, flags.rate, load_cpus) for qos in flags.qos]
    return [Series(broker, plan) for plan, broker in product(plans, brokers)]


def _flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="undisturbed rounds of each series (default 5)")
    parser.add_argument("--duration", type=float, default=2.0, help="seconds of each round (default 2)")
    parser.add_argument("--warm-up", type=float, default=0.7, help="seconds before each (default 0.7)")
    parser.add_argument(
        "--pairs", type=_list_of(range(1, 65)), default=[1, 8], help="how many, as in 1,8 (the default)"
    )
    parser.add_argument("--qos", type=_list_of(range(2)), default=[0, 1], help="0, 1 or 0,1 (the default)")
    parser.add_argument("--window", type=_window, default=4_096, help="messages under way (default 4096)")
    parser.add_argument(
        "--rate", type=int, default=2_000, help="messages a second for the latency (default 2000; 0: none)"
    )
    parser.add_argument(
        "--others", type=float, default=0.1, help="share of a CPU that others may use (default 0.1)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=120.0,
        help="seconds to wait for a quiet machine, in all (default 120)",
    )
    parser.add_argument("--json", action="store_true", help="print every round as JSON")
    return parser


def _list_of(allowed: range) -> Callable[[str], list[int]]:
    def parse(text: str) -> list[int]:
        numbers = [int(part) for part in text.split(",")]
        if not set(numbers) <= set(allowed):
            raise argparse.ArgumentTypeError(f"from {allowed[0]} to {allowed[-1]}")
        return numbers

    return parse


def _window(text: str) -> int:
    window = int(text)
    if not BURST <= window <= _MOST_WINDOW:
        raise argparse.ArgumentTypeError(f"from {BURST} to {_MOST_WINDOW}")
    return window


if __name__ == "__main__":
    sys.exit(main())
