"""CPU time between two moments, by process."""

from __future__ import annotations

import os

from hbroker.bench.resource_totals import ResourceTotals, Spent
from tests.waiting import until


def test_the_remaining_cpu_time_is_that_of_other_processes() -> None:
    before = ResourceTotals(at=10.0, broker=1.0, ours=2.0, machine=5.0, resident=1_000)
    after = ResourceTotals(at=14.0, broker=3.0, ours=5.0, machine=11.0, resident=1_500)
    spent = before.until(after)
    assert spent == Spent(4.0, 2.0, 3.0, 1.0, 500)
    assert (spent.broker_cpu, spent.ours_cpu, spent.others_cpu) == (0.5, 0.75, 0.25)


def test_clocks_that_disagree_give_no_negative_cpu_time() -> None:
    """The machine's time is counted in ticks, and may lag behind that of its processes."""
    first = ResourceTotals(at=0.0, broker=0.0, ours=0.0, machine=0.0, resident=0)
    assert (
        first.until(ResourceTotals(at=1.0, broker=0.5, ours=0.5, machine=0.9, resident=0)).others_cpu_s == 0.0
    )


def test_the_totals_count_only_the_given_processes() -> None:
    before = ResourceTotals.now([os.getpid()])

    def has_worked() -> bool:
        sum(range(100_000))
        return ResourceTotals.now([]).ours - before.ours >= 0.1  # The other clock counts in ticks of 0.01 s.

    until(has_worked, "0.1 s of CPU time", 30)
    after = ResourceTotals.now([os.getpid()])
    assert after.broker - before.broker >= 0.05
    assert after.resident > 0
    assert ResourceTotals.now([]).broker == ResourceTotals.now([]).resident == 0
