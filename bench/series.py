"""Interleaved rounds, and what they say together.

A *series* is one contestant under one plan. The rounds of all series take turns, so that what changes on the
machine in the meantime meets all alike. A round in which others used the machine is discarded, not averaged,
and so is one whose CPUs were further apart than in other rounds; a series that got too few quiet rounds says
so. So does one whose broker failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from statistics import median
from typing import Final, TypeAlias, TypeVar

from bench.brokers import Broker
from bench.plan import Plan
from bench.rounds import Round, Timing
from hbroker.bench.launching import NoAnswer
from hbroker.bench.process import machine_busy_seconds

__all__ = ["Contestant", "Measure", "Policy", "Series", "Spread", "run_all"]

B = TypeVar("B", bound=Broker)

_GLANCE_S: Final = 0.25
_MOST_FAILURES: Final = 2
"""After so many a series is given up."""

Measure: TypeAlias = Callable[[Broker, Plan, Timing, frozenset[int]], Round]
"""Runs a load on a broker that has these CPUs. Raises NoAnswer."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """Who takes part. `name`: as the tables call it. `version`: None where it is not on this machine.
    `measure`: one round of it; raises NoAnswer. `is_checked`: lost, doubled and disordered copies are
    counted."""

    name: str
    version: Callable[[], str | None]
    measure: Callable[[Plan, Timing, frozenset[int]], Round]
    is_checked: bool = True

    @classmethod
    def of(
        cls,
        broker: B,
        measure: Callable[[B, Plan, Timing, frozenset[int]], Round],
        name: str | None = None,
    ) -> Contestant:
        """A broker, by its own name or another."""
        return cls(name or broker.name, broker.version, partial(measure, broker))


@dataclass(frozen=True, slots=True)
class Policy:
    """How to measure. `rounds`: quiet ones wanted of each series. `most_others`: the share of a CPU that
    others may use in a quiet round. `patience_s`: how long to wait, in all, for the machine to become quiet.
    `most_s`: after so long no round begins. `apart`: how far apart the CPUs are now, in nanoseconds; None:
    nobody knows. `most_apart`: so many times as far as in the round where they were nearest they may be in a
    quiet one."""

    rounds: int
    timing: Timing
    broker_cpus: frozenset[int]
    most_others: float
    patience_s: float
    most_s: float
    apart: Callable[[], float | None] = lambda: None
    most_apart: float = 2.0


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
    """One contestant under one plan, and its rounds. `failures`: why rounds came to nothing."""

    contestant: Contestant
    plan: Plan
    quiet: list[Round] = field(default_factory=list)
    disturbed: list[Round] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def sort(self, most_others: float, most_apart: float) -> None:
        """Puts each round where it belongs."""
        rounds = self.all
        kept = [round.others_cpu <= most_others and (round.apart_ns or 0) <= most_apart for round in rounds]
        self.quiet = [round for round, is_quiet in zip(rounds, kept, strict=True) if is_quiet]
        self.disturbed = [round for round, is_quiet in zip(rounds, kept, strict=True) if not is_quiet]

    def spread(self, value: Callable[[Round], float]) -> Spread | None:
        """Of one value of the quiet rounds; None: there is none."""
        return Spread.of([value(round) for round in self.quiet]) if self.quiet else None

    @property
    def all(self) -> list[Round]:
        """Quiet and disturbed: a message that is lost is lost, whatever else the machine did."""
        return self.quiet + self.disturbed


def run_all(series: Sequence[Series], policy: Policy) -> Iterator[tuple[Series, Round | None]]:
    """Runs rounds of all series in turn, until each has its quiet rounds, or has had twice as many in all, or
    fails again and again. Yields each as it ends; None: it failed."""
    patience, begun = policy.patience_s, time.monotonic()
    nearest = inf
    while wanting := [one for one in series if _wants_more(one, policy)]:
        for one in wanting:
            if time.monotonic() > begun + policy.most_s:
                return
            patience -= _wait_for_quiet(policy.most_others, patience)
            round = _round(one, policy)
            if round is not None and round.apart_ns is not None:
                nearest = min(nearest, round.apart_ns)
            for each in series:
                each.sort(policy.most_others, policy.most_apart * nearest)
            yield one, round


def _wants_more(one: Series, policy: Policy) -> bool:
    wanted = policy.rounds * one.plan.often
    had = len(one.all) + len(one.failures)
    return len(one.quiet) < wanted and had < 2 * wanted and len(one.failures) < _MOST_FAILURES


def _round(one: Series, policy: Policy) -> Round | None:
    before = policy.apart()
    try:
        round = one.contestant.measure(one.plan, policy.timing, policy.broker_cpus)
    except NoAnswer as error:
        one.failures.append(str(error))
        return None
    apart = [distance for distance in (before, policy.apart()) if distance is not None]
    round = replace(round, apart_ns=max(apart, default=None))
    one.quiet.append(round)
    return round


def _wait_for_quiet(most_others: float, patience_s: float) -> float:
    """Waits until the machine is quiet, or the patience is used up; returns the seconds that this took."""
    begun = time.monotonic()
    while time.monotonic() - begun < patience_s:
        before = machine_busy_seconds()
        time.sleep(_GLANCE_S)
        if machine_busy_seconds() - before <= most_others * _GLANCE_S:
            break
    return time.monotonic() - begun
