"""Interleaved rounds, and what they say together.

A *series* is one broker under one plan. The rounds of all series take turns, so that what changes on the
machine in the meantime meets all alike. A round in which others used the machine is discarded, not averaged;
a series that got too few quiet rounds says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, TypeAlias

from bench.brokers import Broker
from bench.plan import Plan
from bench.rounds import Round, Timing
from hbroker.bench.process import machine_busy_seconds

__all__ = ["Measure", "Policy", "Series", "Spread", "run_all"]

_GLANCE_S: Final = 0.25


Measure: TypeAlias = Callable[[Broker, Plan, Timing, frozenset[int]], Round]
"""Runs a load on a broker that has these CPUs. Raises NoAnswer."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How to measure. `measure`: one round. `rounds`: quiet ones wanted of each series. `most_others`: the
    share of a CPU that others may use in a quiet round. `patience_s`: how long to wait, in all, for the
    machine to become quiet."""

    measure: Measure
    rounds: int
    timing: Timing
    broker_cpus: frozenset[int]
    most_others: float
    patience_s: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Of some rounds: the median, and the extremes."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(median(values), min(values), max(values))


@dataclass(slots=True)
class Series:
    """One broker under one plan, and its rounds."""

    broker: Broker
    plan: Plan
    quiet: list[Round] = field(default_factory=list)
    disturbed: list[Round] = field(default_factory=list)

    def take(self, round: Round, most_others: float) -> None:
        """Puts a round where it belongs."""
        (self.quiet if round.others_cpu <= most_others else self.disturbed).append(round)

    def spread(self, value: Callable[[Round], float]) -> Spread | None:
        """Of one value of the quiet rounds; None: there is none."""
        return Spread.of([value(round) for round in self.quiet]) if self.quiet else None

    @property
    def all(self) -> list[Round]:
        """Quiet and disturbed: a message that is lost is lost, whatever else the machine did."""
        return self.quiet + self.disturbed


def run_all(series: Sequence[Series], policy: Policy) -> Iterator[tuple[Series, Round]]:
    """Runs rounds of all series in turn, until each has its quiet rounds, or has had twice as many in all.
    Yields each as it ends. Raises NoAnswer where a broker fails."""
    patience = policy.patience_s
    for _ in range(2 * policy.rounds):
        for one in series:
            if len(one.quiet) >= policy.rounds:
                continue
            patience -= _wait_for_quiet(policy.most_others, patience)
            round = policy.measure(one.broker, one.plan, policy.timing, policy.broker_cpus)
            one.take(round, policy.most_others)
            yield one, round


def _wait_for_quiet(most_others: float, patience_s: float) -> float:
    """Waits until the machine is quiet, or the patience is used up; returns the seconds that this took."""
    begun = time.monotonic()
    while time.monotonic() - begun < patience_s:
        before = machine_busy_seconds()
        time.sleep(_GLANCE_S)
        if machine_busy_seconds() - before <= most_others * _GLANCE_S:
            break
    return time.monotonic() - begun
