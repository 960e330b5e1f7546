"""One round: a fresh broker, its load, a warm-up, and what was counted between two marks.

A mark reads everything at one moment: the messages, the CPU time of the broker, of the load and of everybody
else. What is lost is known only at the end, when the publisher has stopped and no more arrives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

from bench.brokers import Broker, Running, running
from bench.load import Shared, publish_load, receive_load
from bench.plan import Plan
from bench.tally import Tally
from bench.transport import NoAnswer
from hbroker.bench.process import cpu_seconds, machine_busy_seconds, resident_bytes

__all__ = ["Round", "Timing", "measure"]

_CONNECT_S: Final = 20.0
_QUIET_S: Final = 2.0
"""Nothing arrives for so long: nothing more will."""
_PUBLISHED_S: Final = 15.0
"""What was sent is acknowledged by then, or never."""
_END_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: before the first mark, and between the two."""

    warm_up: float
    duration: float


@dataclass(frozen=True, slots=True)
class Round:
    """What one round showed. Shares of a CPU: 1.0 is one whole CPU. `sent` counts messages, `delivered` and
    `lost` their copies: one for each subscriber."""

    broker: str
    qos: int
    pairs: int
    subscribers: int
    rate: int | None
    seconds: float
    delivered_per_s: float
    delivered_per_cpu_s: float
    broker_cpu: float
    broker_cpu_s: float
    broker_rss_bytes: int
    publisher_cpu: float | None
    subscriber_cpu: float | None
    generator_cpu: float
    others_cpu: float
    messages_per_datagram_in: float | None
    messages_per_datagram_out: float | None
    latency_us: dict[str, float] | None
    sent: int
    delivered: int
    acknowledged: int
    lost: int
    duplicated: int
    disordered: int
    corrupted: int
    stalls: int
    refusals: int

    @property
    def is_whole(self) -> bool:
        """Everything arrived once, in order and undamaged."""
        return not (self.lost or self.duplicated or self.disordered or self.corrupted or self.stalls)


def measure(broker: Broker, plan: Plan, timing: Timing, broker_cpus: frozenset[int]) -> Round:
    """Runs one round. Raises NoAnswer where the broker or its load does not come up, or goes away."""
    shared = Shared()
    try:
        with (
            TemporaryDirectory(prefix="hbroker-bench-") as directory,
            running(broker, Path(directory), broker_cpus) as node,
            _load(broker, node, plan, shared) as load,
        ):
            time.sleep(timing.warm_up)
            first = _mark(node, load, shared.tally)
            time.sleep(timing.duration)
            last = _mark(node, load, shared.tally)
            latencies = shared.tally.latencies(first.counts["received"])
            rss = resident_bytes(node.pids)
            shared.stop()
            totals = _settle(load, plan, shared.tally)
    finally:
        shared.close()
    return _round(broker, plan, (first, last), totals, rss, latencies)


@dataclass(frozen=True, slots=True)
class _Load:
    publisher: ForkProcess
    subscriber: ForkProcess


@dataclass(frozen=True, slots=True)
class _Mark:
    at: float
    counts: dict[str, int]
    broker: float
    publisher: float
    subscriber: float
    ourselves: float
    machine: float


@contextmanager
def _load(broker: Broker, node: Running, plan: Plan, shared: Shared) -> Iterator[_Load]:
    """The two load processes, connected: the subscriber first."""
    context = get_context("fork")
    subscribe, publish = (partial(side, node.address, plan) for side in (broker.subscriber, broker.publisher))
    subscriber = context.Process(target=receive_load, args=(subscribe, plan, shared))
    publisher = context.Process(target=publish_load, args=(publish, plan, shared))
    try:
        for process in (subscriber, publisher):
            process.start()
            if not shared.wait_ready(_CONNECT_S):
                raise NoAnswer(f"{broker.name}: the load did not get connected")
        yield _Load(publisher, subscriber)
    finally:
        for process in (publisher, subscriber):
            _end(process)


def _mark(node: Running, load: _Load, tally: Tally) -> _Mark:
    if not (load.publisher.is_alive() and load.subscriber.is_alive()):
        raise NoAnswer("a load process has ended by itself")
    return _Mark(
        at=time.monotonic(),
        counts=tally.read(),
        broker=cpu_seconds(node.pids),
        publisher=cpu_seconds([load.publisher.pid or 0]),
        subscriber=cpu_seconds([load.subscriber.pid or 0]),
        ourselves=cpu_seconds([os.getpid()]),
        machine=machine_busy_seconds(),
    )


def _settle(load: _Load, plan: Plan, tally: Tally) -> dict[str, int]:
    """The final counts, once the publisher has ended and the rest has arrived, or nothing more does."""
    load.publisher.join(_PUBLISHED_S)
    before, changed_at = tally.read(), time.monotonic()
    while before["received"] < before["sent"] * plan.subscribers and time.monotonic() < changed_at + _QUIET_S:
        time.sleep(0.01)
        now = tally.read()
        if now != before:
            before, changed_at = now, time.monotonic()
    _end(load.subscriber)
    return tally.read()


def _end(process: ForkProcess) -> None:
    if process.pid is None:
        return
    process.terminate()
    process.join(_END_S)
    if process.is_alive():
        process.kill()
        process.join()


def _round(
    broker: Broker,
    plan: Plan,
    marks: tuple[_Mark, _Mark],
    totals: dict[str, int],
    rss: int,
    latencies: list[int],
) -> Round:
    first, last = marks
    seconds = last.at - first.at
    delivered = last.counts["received"] - first.counts["received"]
    broker_cpu = last.broker - first.broker
    ours = [(getattr(last, name) - getattr(first, name)) for name in ("publisher", "subscriber", "ourselves")]
    others = last.machine - first.machine - broker_cpu - sum(ours)

    def per_datagram(counter: str) -> float | None:
        datagrams = last.counts[counter] - first.counts[counter]
        return delivered / datagrams if datagrams else None

    return Round(
        broker=broker.name,
        qos=plan.qos,
        pairs=plan.pairs,
        subscribers=plan.subscribers,
        rate=plan.rate,
        seconds=seconds,
        delivered_per_s=delivered / seconds,
        delivered_per_cpu_s=delivered / broker_cpu if broker_cpu else 0.0,
        broker_cpu=broker_cpu / seconds,
        broker_cpu_s=broker_cpu,
        broker_rss_bytes=rss,
        publisher_cpu=ours[0] / seconds,
        subscriber_cpu=ours[1] / seconds,
        generator_cpu=(ours[0] + ours[1]) / seconds,
        others_cpu=max(0.0, others) / seconds,
        messages_per_datagram_in=per_datagram("datagrams_to_broker"),
        messages_per_datagram_out=per_datagram("datagrams_from_broker"),
        latency_us=_percentiles(latencies),
        sent=totals["sent"],
        delivered=totals["received"],
        acknowledged=totals["acknowledged"],
        lost=totals["sent"] * plan.subscribers - totals["received"],
        **{name: totals[name] for name in ("duplicated", "disordered", "corrupted", "stalls", "refusals")},
    )


def _percentiles(latencies: list[int]) -> dict[str, float] | None:
    if len(latencies) < 1_000:
        return None
    cuts = quantiles(latencies, n=1_000)
    return {
        name: cuts[at - 1] / 1e3 for name, at in (("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999))
    }
