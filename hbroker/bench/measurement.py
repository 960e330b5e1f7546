"""One measurement: a load on a broker, between two snapshots.

A snapshot reads all values at one moment: messages, and what broker, load and machine have used
(`resource_totals`). Rates are those between the snapshots. Lost, duplicated and disordered messages are
counted over the whole run, with the warm-up. Their number is known only when the publishers have stopped and
nothing more arrives.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from hbroker.bench.brokers import Broker
from hbroker.bench.generator import Generator
from hbroker.bench.process import cpu_seconds
from hbroker.bench.resource_totals import ResourceTotals

if TYPE_CHECKING:
    from hbroker._native import LoadReport
    from hbroker.bench.layouts import Group
    from hbroker.bench.plan import Plan

__all__ = ["FULL", "GroupResult", "Measured", "Percentiles", "measure"]

FULL: Final = 0.85
"""With at least this share of its CPU, a side is the limit; others may use the rest."""

_QUIET_S: Final = 1.0
"""Seconds without a message after which no more are expected."""
_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles in microseconds."""

    p50: float
    p90: float
    p99: float
    p999: float

    @classmethod
    def of(cls, nanoseconds: list[int] | None) -> Percentiles | None:
        """From the core's nanoseconds; None: nothing was timed."""
        return None if nanoseconds is None else cls(*(value / 1_000 for value in nanoseconds))

    @classmethod
    def among(cls, nanoseconds: Sequence[int]) -> Percentiles:
        """Of at least one time in nanoseconds, by nearest rank."""
        ordered = sorted(nanoseconds)
        last = len(ordered) - 1
        return cls(*(ordered[min(last, int(share * len(ordered)))] / 1_000 for share in _SHARES))


_SHARES: Final = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The results for a group of publishers and their subscribers.

    The fields are those of `Measured`. `owner`: the node that owns their topics; `owner_cpu_s`: its CPU time;
    None: all groups have the same owner.
    """

    name: str
    publishers: int
    sent: int
    delivered: int
    lost: int
    duplicated: int
    disordered: int
    delivered_per_s: float
    latency_us: Percentiles | None
    lateness_us: Percentiles | None
    owner: str | None
    owner_cpu_s: float | None
    delivered_per_cpu_s: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a measurement.

    `sent` counts messages; `delivered`, `lost` and the other faults count copies, one for each subscriber.
    Shares of a CPU: 1.0 is one whole CPU. Values of the broker's processes are None if these are unknown.
    `lateness_us`: how late the load sent what was due, at a fixed rate. `groups`: each group, if there are
    several.
    """

    plan: Plan
    seconds: float
    delivered_per_s: float
    delivered_per_cpu_s: float | None
    sent: int
    delivered: int
    acknowledged: int
    refused: int
    lost: int
    duplicated: int
    disordered: int
    damaged: int
    stalls: int
    latency_us: Percentiles | None
    lateness_us: Percentiles | None
    broker_cpu: float | None
    broker_cpu_s: float | None
    broker_rss_bytes: int | None
    generator_cpu: float
    others_cpu: float | None
    groups: Sequence[GroupResult]

    @property
    def is_whole(self) -> bool:
        """Whether every message arrived once, in order and undamaged, and none was refused."""
        faults = (self.lost, self.duplicated, self.disordered, self.damaged, self.refused, self.stalls)
        return self.sent > 0 and not any(faults)

    @property
    def limit(self) -> str:
        """What limited the rate: `rate`, `broker`, `generator`, or `neither` of the two."""
        is_paced = self.plan.rate is not None and all(group.is_paced for group in self.plan.shape.groups)
        if is_paced and self.delivered_per_s > 0.99 * self._wanted_per_s():
            return "rate"
        if self.broker_cpu is not None and self.broker_cpu >= FULL:
            return "broker"
        return "generator" if self.generator_cpu >= FULL else "neither"

    def to_json(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        fields = asdict(self)
        plan = fields.pop("plan")
        return {**plan, "limit": self.limit, **fields}

    def _wanted_per_s(self) -> float:
        shape = self.plan.shape
        return (self.plan.rate or 0.0) * shape.copies / len(shape.publishers)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    report: LoadReport
    used: ResourceTotals
    owners: Mapping[str, float]


def measure(plan: Plan, broker: Broker, load: Generator) -> Measured:
    """Runs the load and measures it. Raises NoAnswer if a connection ends."""
    load.start()
    load.run(plan.warm_up)
    load.forget_times()
    first = _snapshot(broker, load)
    load.run(plan.duration)
    last = _snapshot(broker, load)
    load.stop()
    total = _settled(load)
    return _measured(plan, broker, (first, last), total)


def _snapshot(broker: Broker, load: Generator) -> _Snapshot:
    return _Snapshot(
        report=load.report(),
        used=ResourceTotals.now(broker.pids),
        owners={name: cpu_seconds([pid]) for name, pid in broker.nodes.items()},
    )


def _settled(load: Generator) -> LoadReport:
    """The counters when every message has arrived and has its result, or nothing more arrives."""
    found, changed_at = load.report(), time.monotonic()
    while _is_open(load.plan, found) and time.monotonic() < changed_at + _QUIET_S:
        load.run(_PAUSE_S)
        now = load.report()
        if (now.delivered, now.acknowledged) != (found.delivered, found.acknowledged):
            changed_at = time.monotonic()
        found = now
    return found


def _is_open(plan: Plan, found: LoadReport) -> bool:
    unanswered = plan.qos > 0 and found.acknowledged + found.refused < found.sent
    return found.lost > 0 or unanswered


def _measured(
    plan: Plan,
    broker: Broker,
    snapshots: tuple[_Snapshot, _Snapshot],
    total: LoadReport,
) -> Measured:
    first, last = snapshots
    delivered = last.report.delivered - first.report.delivered
    spent = first.used.until(last.used)
    is_known = bool(broker.pids)
    return Measured(
        plan=plan,
        seconds=spent.seconds,
        delivered_per_s=delivered / spent.seconds,
        delivered_per_cpu_s=delivered / spent.broker_cpu_s if spent.broker_cpu_s else None,
        sent=total.sent,
        delivered=total.delivered,
        acknowledged=total.acknowledged,
        refused=total.refused,
        lost=total.lost,
        duplicated=total.duplicated,
        disordered=total.disordered,
        damaged=total.damaged,
        stalls=total.stalls,
        latency_us=Percentiles.of(last.report.latency_ns),
        lateness_us=Percentiles.of(last.report.lateness_ns),
        broker_cpu=spent.broker_cpu if is_known else None,
        broker_cpu_s=spent.broker_cpu_s if is_known else None,
        broker_rss_bytes=last.used.resident if is_known else None,
        generator_cpu=spent.ours_cpu,
        others_cpu=spent.others_cpu if is_known else None,
        groups=[_group_result(*each, snapshots) for each in _apart(plan, total)],
    )


def _apart(plan: Plan, total: LoadReport) -> Iterator[tuple[int, Group, LoadReport]]:
    """The groups by number, with their final counters; none if there is only one group."""
    groups = plan.shape.groups
    if len(groups) > 1:
        for number, (group, found) in enumerate(zip(groups, total.groups, strict=True)):
            yield number, group, found


def _group_result(
    number: int, group: Group, total: LoadReport, snapshots: tuple[_Snapshot, _Snapshot]
) -> GroupResult:
    first, last = snapshots
    timed = last.report.groups[number]
    delivered = timed.delivered - first.report.groups[number].delivered
    owner = group.owner if group.owner in last.owners else None
    cpu = None if owner is None else last.owners[owner] - first.owners[owner]
    return GroupResult(
        name=group.name,
        publishers=group.publishers,
        sent=total.sent,
        delivered=total.delivered,
        lost=total.lost,
        duplicated=total.duplicated,
        disordered=total.disordered,
        delivered_per_s=delivered / (last.used.at - first.used.at),
        latency_us=Percentiles.of(timed.latency_ns),
        lateness_us=Percentiles.of(timed.lateness_ns),
        owner=owner,
        owner_cpu_s=cpu,
        delivered_per_cpu_s=delivered / cpu if cpu else None,
    )
