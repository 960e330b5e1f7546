"""The command line that measurements share, and the run itself."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import product
from typing import Final

from bench.contestants.brokers import Broker
from bench.plan import Plan
from bench.results.report import as_json, as_text, not_installed, progress_line
from bench.rounds import Timing
from bench.series import Contestant, Measure, Policy, Series, run_all
from hbroker.bench.launching import end_strays

__all__ = [
    "broker_and_load_cpus",
    "command_line",
    "flags",
    "list_of",
    "measure_all",
    "paced_plans",
    "pair_plans",
    "policy_of",
    "round_flags",
    "run_series",
    "timing_flags",
]

_INTERRUPTED: Final = 130


def round_flags(
    name: str, description: str, *, rounds: int = 5, duration: float = 2.0, warm_up: float = 0.7
) -> argparse.ArgumentParser:
    """The flags of every measurement: number and length of its rounds. The arguments are the defaults."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help="those that count (default %(default)s)")
    parser.add_argument(
        "--duration", type=float, default=duration, help="seconds of each round (default %(default)s)"
    )
    parser.add_argument(
        "--warm-up", type=float, default=warm_up, help="seconds before each (default %(default)s)"
    )
    return parser


def timing_flags(name: str, description: str) -> argparse.ArgumentParser:
    """As `round_flags`, with flags for rounds that must be undisturbed."""
    parser = round_flags(name, description)
    parser.add_argument(
        "--others", type=float, default=0.1, help="share of a CPU that others may use (default 0.1)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=120.0,
        help="seconds to wait for a quiet machine, in all (default 120)",
    )
    parser.add_argument(
        "--most",
        type=float,
        default=float("inf"),
        metavar="SECONDS",
        help="begin no round after so long (default: no limit)",
    )
    parser.add_argument("--json", action="store_true", help="print every round as JSON")
    return parser


def flags(name: str, description: str) -> argparse.ArgumentParser:
    """As `timing_flags`, with flags that choose the loads."""
    parser = timing_flags(name, description)
    parser.add_argument(
        "--pairs", type=list_of(range(1, 65)), default=[1, 8], help="how many, as in 1,8 (the default)"
    )
    parser.add_argument("--qos", type=list_of(range(2)), default=[0, 1], help="0, 1 or 0,1 (the default)")
    parser.add_argument("--window", type=int, default=4_096, help="messages under way (default 4096)")
    parser.add_argument(
        "--rate", type=int, default=2_000, help="messages a second for the latency (default 2000; 0: none)"
    )
    return parser


def list_of(allowed: range) -> Callable[[str], list[int]]:
    """A parser for numbers separated by commas."""

    def parse(text: str) -> list[int]:
        numbers = [int(part) for part in text.split(",")]
        if not set(numbers) <= set(allowed):
            raise argparse.ArgumentTypeError(f"from {allowed[0]} to {allowed[-1]}")
        return numbers

    return parse


def pair_plans(asked: argparse.Namespace, load_cpus: frozenset[int]) -> list[Plan]:
    """Loads of a closed loop, one for each QoS and number of pairs."""
    return [Plan(pairs, qos, asked.window, None, load_cpus) for qos, pairs in product(asked.qos, asked.pairs)]


def paced_plans(asked: argparse.Namespace, load_cpus: frozenset[int]) -> list[Plan]:
    """Loads of one pair at a fixed rate, for the latency."""
    return [Plan(1, qos, asked.window, asked.rate, load_cpus) for qos in asked.qos if asked.rate]


def measure_all(
    asked: argparse.Namespace,
    brokers: Sequence[Broker],
    plans_for: Callable[[argparse.Namespace, frozenset[int]], Sequence[Plan]],
    measure: Measure,
) -> int:
    """Measures and prints. Returns the exit code of `run_series`.

    `measure`: one round. `plans_for`: the loads on these CPUs. They run plan by plan, and for each plan
    broker by broker, so that rounds that are compared run next to each other. After an interrupt the results
    until then are printed.
    """
    broker_cpus, load_cpus = broker_and_load_cpus()
    here = [broker for broker in brokers if broker.version() is not None]
    left_out = [not_installed(broker.name) for broker in brokers if broker not in here]
    plans = plans_for(asked, load_cpus)
    series = [Series(Contestant.of(broker, measure), plan) for plan, broker in product(plans, here)]
    code = run_series(series, policy_of(asked, broker_cpus))
    print(json.dumps(as_json(series, left_out), indent=2) if asked.json else as_text(series, left_out))
    return code


def broker_and_load_cpus() -> tuple[frozenset[int], frozenset[int]]:
    """One CPU for the broker and one for the load. Raises SystemExit with a message if there are not two."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("two CPUs are needed: one for the broker, one for the load")
    return frozenset(cpus[:1]), frozenset(cpus[1:2])


def command_line(name: str, arguments: Sequence[str] | None) -> str:
    """The command line of this measurement. `arguments`: None: those of the process."""
    return shlex.join(["python", "-m", name, *(sys.argv[1:] if arguments is None else arguments)])


def policy_of(asked: argparse.Namespace, broker_cpus: frozenset[int]) -> Policy:
    """The policy that the flags of `timing_flags` ask for."""
    return Policy(
        rounds=asked.rounds,
        timing=Timing(asked.warm_up, asked.duration),
        broker_cpus=broker_cpus,
        most_others=asked.others,
        patience_s=asked.patience,
        most_s=asked.most,
    )


def run_series(series: Sequence[Series], policy: Policy) -> int:
    """Runs the rounds, and reports each. Returns the exit code: 0 done, 1 a broker failed, 130
    interrupted."""
    _open_many_files()
    # On SIGTERM it also ends the processes that it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for number, (one, round) in enumerate(run_all(series, policy), 1):
            print(f"round {number}: {progress_line(one, round)}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        end_strays()
        return _INTERRUPTED
    return 1 if any(one.failures for one in series) else 0


def _open_many_files() -> None:
    """Raises the limit of open files, of the load and the brokers, as far as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
