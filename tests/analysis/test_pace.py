"""The pace of a network is the pace of its traffic, however long the network is idle before and after."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker.spark_analysis.measures.pace import SPAN_S, seconds_at_pace
from hbroker.spark_analysis.tables import Rows

BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def rows_of(loads: Sequence[int], window_s: int = 1, node: str = "root", role: str = "node") -> Rows:
    """A node that handled these numbers of messages in consecutive windows."""
    return [
        {
            "role": role,
            "node": node,
            "window_start": BEGIN + timedelta(seconds=number * window_s),
            "seconds": float(window_s),
            "load": load,
        }
        for number, load in enumerate(loads)
    ]


@pytest.mark.parametrize(("before", "after"), [(0, 0), (10, 0), (20, 29), (3_600, 4)])
def test_idle_time_does_not_count(before: int, after: int) -> None:
    loads = [0] * before + [100] * 30 + [0] * after
    assert seconds_at_pace(rows_of(loads)) == pytest.approx(30)


def test_bursts_are_averaged() -> None:
    assert seconds_at_pace(rows_of([500, *[0] * 9] * 6)) == pytest.approx(60)


def test_the_busy_part_of_a_day_counts() -> None:
    assert seconds_at_pace(rows_of([100] * 16 + [900] * 8, 3_600)) == pytest.approx(8_800 / 900 * 3_600)


def test_the_span_need_not_begin_with_the_traffic() -> None:
    """Of 25 s of traffic nine lie in the first span, and six in the last."""
    assert seconds_at_pace(rows_of([0, *[100] * 25, *[0] * 20])) == pytest.approx(25, rel=0.03)


def test_the_loads_of_nodes_are_added_without_gateways() -> None:
    rows = rows_of([10] * 40) + rows_of([30] * 40, node="kitchen") + rows_of([999] * 90, role="gateway")
    assert seconds_at_pace(rows) == pytest.approx(40)


def test_intervals_may_have_different_lengths() -> None:
    """Some intervals of the kitchen begin in one span and end in the next."""
    rows = rows_of([100] * 40)
    long = [{**row, "seconds": 1.1, "load": 110, "node": "kitchen"} for row in rows]
    assert seconds_at_pace(rows + long) == pytest.approx(42)


def test_a_network_without_traffic_has_no_pace() -> None:
    assert seconds_at_pace([]) == 0
    assert seconds_at_pace(rows_of([0] * 20)) == 0


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=60), st.sampled_from([1, 2, 5, 10, 30]))
def test_the_pace_lies_between_the_mean_and_the_highest_rate(loads: list[int], window_s: int) -> None:
    found = seconds_at_pace(rows_of(loads, window_s))
    assert 0 <= found <= len(loads) * window_s * (1 + 1e-9)
    if any(loads):
        busiest = max(
            sum(some) / (len(some) * window_s)
            for some in (
                loads[first : first + max(SPAN_S // window_s, 1)]
                for first in range(0, len(loads), max(SPAN_S // window_s, 1))
            )
        )
        assert sum(loads) / found <= busiest * (1 + 1e-9)
