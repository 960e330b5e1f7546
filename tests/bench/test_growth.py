"""How costs grow with size: a table row and a plot for each quantity."""

from __future__ import annotations

from dataclasses import asdict
from xml.etree import ElementTree

import pytest

from bench.growth.__main__ import QUANTITIES, main
from bench.growth.filters import measure_filters
from bench.growth.width import measure_width

_FIELDS = {
    "kind": "plain",
    "look_up_ns": 100.0,
    "spread_ns": 500.0,
    "sockets": "own",
    "load": "256 under way",
    "join_ms": 1.6,
    "subscribe_ms": 1.4,
    "join_in": 1_000,
    "join_out": 800,
    "lease_in_per_s": 100.0,
    "delivered_per_s": 1e6,
    "delivered_per_cpu_s": 2e6,
    "bytes_each": 1_500.0,
    "cold_p50_us": 40.0,
    "cached_ns": 90.0,
}


@pytest.mark.parametrize("name", QUANTITIES)
def test_every_quantity_has_a_plot_with_all_its_sizes(name: str) -> None:
    quantity = QUANTITIES[name]
    rows = [{**_FIELDS, quantity.across: size} for size in (1, 10, 100)]
    plot = ElementTree.fromstring(quantity.plot(rows))
    circles = [node for node in plot.iter() if node.tag.endswith("circle")]
    assert len(circles) == 3 * len(quantity.curves)
    texts = [node.text for node in plot.iter() if node.tag.endswith("text")]
    assert quantity.title in texts
    unknown = [{**row, "delivered_per_cpu_s": None} for row in rows]
    assert ElementTree.fromstring(quantity.plot(unknown)) is not None
    if quantity.by is not None:
        assert any(str(text).startswith(str(_FIELDS[quantity.by])) for text in texts)


def test_the_time_and_memory_of_filters_are_measured() -> None:
    few, many = measure_filters("wildcard", 100), measure_filters("wildcard", 10_000)
    assert (few.filters, many.filters) == (100, 10_000)
    assert few.bytes_each is None
    assert many.bytes_each is not None
    assert 50 < many.bytes_each < 1_000
    assert many.look_up_ns < 100_000
    assert many.subscribe_ns > 0
    assert many.spread_ns < 100_000


def test_the_goal_of_look_ups_is_about_a_working_set_and_the_spread_is_reported_too() -> None:
    small = {"kind": "plain", "filters": 1_000, "look_up_ns": 30.0, "spread_ns": 30.0}
    large = {"kind": "plain", "filters": 1_000_000, "look_up_ns": 75.0, "spread_ns": 600.0}
    (line,) = QUANTITIES["filters"].goal_results([small, large])
    assert line.endswith("2.50: not held; spread over the table: 20.00")
    (line,) = QUANTITIES["filters"].goal_results([small, {**large, "look_up_ns": 50.0}])
    assert "1.67: held" in line
    assert QUANTITIES["filters"].goal_results([small]) == []


def test_the_gain_of_a_second_worker_is_reported_with_and_without_the_load() -> None:
    one = {"load": "256 under way", "workers": 1, "delivered_per_s": 1e6, "delivered_per_cpu_s": 4e6}
    two = {**one, "workers": 2, "delivered_per_s": 1.3e6, "delivered_per_cpu_s": 3e6}
    other = {**one, "load": "4,096 under way"}
    (line,) = QUANTITIES["workers"].goal_results([one, two, other])
    assert line.startswith("- 256 under way: ")
    assert line.endswith("1.30 times as many: held; without the load's share of the CPUs: 1.50")


def test_a_width_is_reproducible_from_its_seed_and_the_cost_per_child_is_constant() -> None:
    few, again, many = measure_width(5, seed=3), measure_width(5, seed=3), measure_width(60, seed=3)
    cpu = {"join_cpu_s": 0.0, "subscribe_cpu_s": 0.0}
    assert {**asdict(few), **cpu} == {**asdict(again), **cpu}
    assert (few.children, few.hops, many.hops) == (5, 2, 2)
    for small, large in ((few.join_in, many.join_in), (few.join_out, many.join_out)):
        assert 0 < large <= 12 * small
    assert 0 < many.subscribe_all <= 12 * few.subscribe_all
    assert 0 < many.lease_in_per_s <= 12 * few.lease_in_per_s
    assert many.subscribe_ms <= 2 * few.subscribe_ms
    assert many.join_ms <= 2 * few.join_ms


def test_an_unknown_quantity_is_refused() -> None:
    with pytest.raises(SystemExit):
        main(["pears"])
