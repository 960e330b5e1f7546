"""What things cost as they grow: a row and a plot of each."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bench.filters import measure_filters
from bench.growth import QUANTITIES, main

_FIELDS = {
    "kind": "plain",
    "look_up_ns": 100.0,
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
        assert _FIELDS[quantity.by] in texts


def test_filters_are_counted_and_found() -> None:
    few, many = measure_filters("wildcard", 100), measure_filters("wildcard", 10_000)
    assert (few.filters, many.filters) == (100, 10_000)
    assert few.bytes_each is None
    assert many.bytes_each is not None
    assert 50 < many.bytes_each < 1_000
    assert many.look_up_ns < 100_000
    assert many.subscribe_ns > 0


def test_what_is_no_quantity_is_refused() -> None:
    with pytest.raises(SystemExit):
        main(["pears"])
