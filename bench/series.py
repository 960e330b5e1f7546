"""Interleaved rounds, and their combined results.

A *series* is one contestant under one plan. The rounds of all series alternate, so that changes of the
machine affect all alike. A round in which other processes used the machine is discarded, not averaged. So is
one whose CPUs were further apart than in other rounds. A series with too few quiet rounds, or with a failed
broker, is reported as such.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from statistics import median
from typing import Final, TypeVar

from bench.contestants.brokers import Broker
from bench.plan import Plan
from bench.rounds import Round, Timing
from hbroker.bench.launching import NoAnswer
from hbroker.bench.process import machine_busy_seconds

B = TypeVar("B", bound=Broker)

_GLANCE_S: Final = 0.25
_MOST_FAILURES: Final = 2
"""After this number of failures a series is given up."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """What takes part in a contest.

    `name`: in the tables. `version`: returns None if it is not installed. `measure`: runs one round; raises
    NoAnswer. `is_checked`: lost, duplicated and disordered copies are counted.
    """

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
        """A broker as a contestant, under its own name or another."""
        return cls(name or broker.name, broker.version, partial(measure, broker))


@dataclass(frozen=True, slots=True)
class Policy:
    """How to measure.

    `rounds`: the wanted number of quiet rounds of each series. `most_others`: the share of a CPU that other
    processes may use in a quiet round. `patience_s`: how long to wait in all for a quiet machine. `most_s`:
    after this time no round begins. `apart`: measures the distance of the CPUs in nanoseconds; None: unknown.
    `most_apart`: the largest distance in a quiet round, as a factor of the smallest one seen.
    """

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
    """The median and the extremes of a value."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(median(values), min(values), max(values))


@dataclass(slots=True)
class Series:
    """One contestant under one plan, and its rounds. `failures`: the reasons of failed rounds."""

    contestant: Contestant
    plan: Plan
    quiet: list[Round] = field(default_factory=list)
    disturbed: list[Round] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def sort(self, most_others: float, most_apart: float) -> None:
        """Divides the rounds into quiet and disturbed ones."""
        rounds = self.all
        kept = [round.others_cpu <= most_others and (round.apart_ns or 0) <= most_apart for round in rounds]
        self.quiet = [round for round, is_quiet in zip(rounds, kept, strict=True) if is_quiet]
        self.disturbed = [round for round, is_quiet in zip(rounds, kept, strict=True) if not is_quiet]

    def spread(self, value: Callable[[Round], float]) -> Spread | None:
        """The spread of a value over the quiet rounds; None: there is none."""
        return Spread.of([value(round) for round in self.quiet]) if self.quiet else None

    @property
    def all(self) -> list[Round]:
        """All rounds, because a lost message is a fault however busy the machine was."""
        return self.quiet + self.disturbed


def run_all(series: Sequence[Series], policy: Policy) -> Iterator[tuple[Series, Round | None]]:
    """Runs rounds of all series alternately.

    It ends when each series has its quiet rounds, or twice that number in all, or has failed too often.
    Yields each round when it ends; None: it failed.
    """
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
    """Waits until the machine is quiet, or the patience is used up. Returns the seconds that this took."""
    begun = time.monotonic()
    while time.monotonic() - begun < patience_s:
        before = machine_busy_seconds()
        time.sleep(_GLANCE_S)
        if machine_busy_seconds() - before <= most_others * _GLANCE_S:
            break
    return time.monotonic() - begun
