"""What an owner does with twice as much as it can take: `python -m bench.overload`.

A closed loop first measures the owner's capacity. Then the same publishers offer twice that rate in an open
loop, while another client subscribes and unsubscribes repeatedly. The result is the delivered share of the
capacity, the delay of SUBSCRIBE, and the growth of the owner's memory. With many topics a message costs the
owner more than the load, so one CPU is enough for the load.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import median
from typing import Any, Final

import click

from bench.command import broker_and_load_cpus, round_options
from bench.contestants.networks import Node
from bench.rounds import Timing, told_by, up
from hbroker import sync
from hbroker.bench.brokers import Broker
from hbroker.bench.launching import NoAnswer
from hbroker.bench.measurement import Percentiles
from hbroker.bench.plan import Address
from hbroker.bench.process import resident_bytes
from hbroker.errors import HBrokerError

_FACTOR: Final = 2.0
_TOPICS: Final = 10_000
_PAIRS: Final = 8
_PAUSE_S: Final = 0.02
"""Between two requests of the other client, and between two readings of the memory."""
_PRIORITY: Final = 10
_PATIENCE_S: Final = 60.0
_COLUMNS: Final = (
    "capacity, msg/s",
    "offered",
    "delivered",
    "of capacity",
    "lost",
    "SUBSCRIBE p50 ms",
    "p99 ms",
    "longest ms",
    "RSS MiB before",
    "at most",
    "limit",
    "others",
)


@dataclass(frozen=True, slots=True)
class Overload:
    """The result of one round.

    `capacity`: messages a second of the closed loop. `lost`: the share of messages that did not arrive.
    `answered_us`: of SUBSCRIBE, from the call to the owner's answer. `rss_before`, `rss_most`: the owner's
    memory. `limit`: what limited the closed loop. `others_cpu`: the larger value of both loads.
    """

    capacity: float
    offered: float
    delivered: float
    lost: float
    answered_us: Percentiles
    longest_us: float
    rss_before: int
    rss_most: int
    limit: str
    others_cpu: float

    @property
    def goodput(self) -> float:
        """The share of its capacity that the owner still delivers."""
        return self.delivered / self.capacity

    def cells(self) -> tuple[str, ...]:
        """The cells of its row in the table."""
        return (
            f"{self.capacity:,.0f}",
            f"{self.offered:,.0f}",
            f"{self.delivered:,.0f}",
            f"{self.goodput:.0%}",
            f"{self.lost:.2%}",
            f"{self.answered_us.p50 / 1e3:.1f}",
            f"{self.answered_us.p99 / 1e3:.1f}",
            f"{self.longest_us / 1e3:.1f}",
            f"{self.rss_before / 2**20:.0f}",
            f"{self.rss_most / 2**20:.0f}",
            self.limit,
            f"{self.others_cpu:.0%}",
        )


@click.command
@round_options(rounds=3, duration=5.0, warm_up=1.0)
@click.option("--topics", default=_TOPICS, show_default=True, help="Of each publisher.")
@click.option("--factor", default=_FACTOR, show_default=True, help="Of the capacity, offered.")
def main(rounds: int, duration: float, warm_up: float, topics: int, factor: float) -> None:
    """Measures what an owner does with more than it can take, and prints a table.

    Exit codes: 0 done, 1 it could not be measured.
    """
    cpus = broker_and_load_cpus()
    found = []
    print(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}", flush=True)
    try:
        for _ in range(rounds):
            found.append(_round(Timing(warm_up, duration), topics, factor, *cpus))
            print(f"| {' | '.join(found[-1].cells())} |", flush=True)
    except (NoAnswer, HBrokerError) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    print(
        f"medians: {median(one.goodput for one in found):.0%} of the capacity; SUBSCRIBE p99"
        f" {median(one.answered_us.p99 for one in found) / 1e3:.1f} ms"
    )


def answers(address: Address, seconds: float, cpus: frozenset[int]) -> list[int]:
    """The duration of each SUBSCRIBE in nanoseconds, one after the other for this time. Raises
    HBrokerError."""
    os.sched_setaffinity(0, cpus)
    # If permitted, it has priority over the load, which uses that CPU fully: the owner is to be timed.
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    took: list[int] = []
    host, port = address
    with sync.connect(f"{host}:{port}") as client:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic_ns()
            subscription = client.subscribe(f"overload/{len(took)}")
            took.append(time.monotonic_ns() - began)
            subscription.close()
            time.sleep(_PAUSE_S)
    return took


def _round(
    timing: Timing, topics: int, factor: float, broker_cpus: frozenset[int], load_cpus: frozenset[int]
) -> Overload:
    with up(Node(), broker_cpus) as standing:
        node = standing.processes
        closed = _load(timing, topics, node, load_cpus)
        capacity = closed["delivered_per_s"]
        before = resident_bytes(node.pids)
        rate = factor * capacity
        with (
            ProcessPoolExecutor(1, mp_context=get_context("spawn")) as prober,
            ThreadPoolExecutor(1) as thread,
        ):
            paced = ("--open", "--rate", f"{rate:.0f}")
            loaded = thread.submit(_load, timing, topics, node, load_cpus, *paced)
            time.sleep(timing.warm_up)
            answered = prober.submit(answers, node.address, timing.duration, load_cpus)
            most = before
            while not loaded.done() and not answered.done():
                most = max(most, resident_bytes(node.pids))
                time.sleep(_PAUSE_S)
            took, blast = answered.result(), loaded.result()
    return Overload(
        capacity=capacity,
        offered=rate,
        delivered=blast["delivered_per_s"],
        lost=blast["lost"] / max(1, blast["sent"]),
        answered_us=Percentiles.among(took),
        longest_us=max(took) / 1e3,
        rss_before=before,
        rss_most=most,
        limit=closed["limit"],
        others_cpu=max(closed["others_cpu"], blast["others_cpu"]),
    )


def _load(timing: Timing, topics: int, node: Broker, cpus: frozenset[int], *more: str) -> dict[str, Any]:
    """The output of the pairs, which run in a process of their own. Raises NoAnswer."""
    flags: dict[str, object] = {
        "--clients": _PAIRS,
        "--topics": topics,
        "--to": f"{node.address[0]}:{node.address[1]}",
        "--broker-pid": node.pids[0],
        "--cpus": ",".join(map(str, sorted(cpus))),
        "--warm-up": timing.warm_up,
        "--duration": timing.duration,
    }
    words = [str(word) for flag in flags.items() for word in flag]
    command = [sys.executable, "-m", "hbroker", "bench", "pairs", "--json", *words, *more]
    return told_by("the load", command, _PATIENCE_S)


if __name__ == "__main__":
    main()
