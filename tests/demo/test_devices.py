"""The readings of the devices: plausible, within bounds, and on topics that a node of the house owns."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hbroker
from hbroker.demo.devices import Device, Walk, _Rate, machine, rooms
from hbroker.demo.life import FILTERS

DEVICES = (*rooms(Random(1)), *machine())


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.topic)
def test_a_device_publishes_valid_messages(device: Device) -> None:
    assert hbroker.topic_is_valid(device.topic)
    assert device.topic.startswith("home/")
    assert device.period > 0
    assert device.qos in (0, 1)
    assert device.read()


def test_topics_are_unique_and_in_every_room() -> None:
    topics = [device.topic for device in DEVICES]
    assert len(set(topics)) == len(topics)
    assert {topic.split("/")[1] for topic in topics} == {
        "kitchen",
        "livingroom",
        "bedroom",
        "outside",
        "office",
    }
    assert {device.qos for device in DEVICES} == {0, 1}


@pytest.mark.parametrize("device", machine(), ids=lambda device: device.topic)
def test_the_machine_reports_numbers(device: Device) -> None:
    assert float(device.read()) >= 0


@pytest.mark.parametrize("filter", [filter for filter, _ in FILTERS])
def test_every_filter_matches_a_device(filter: str) -> None:
    assert any(hbroker.topic_matches(filter, device.topic) for device in DEVICES)


@given(seed=st.integers(0, 2**32), usual=st.floats(1, 100), step=st.floats(0, 50))
def test_a_walk_stays_within_its_bounds(seed: int, usual: float, step: float) -> None:
    walk = Walk(Random(seed), usual, step, 0.0, 10 * usual, digits=6)
    values = [float(walk()) for _ in range(200)]
    assert min(values) >= 0.0
    assert max(values) <= 10 * usual + 1e-6


def test_a_walk_stays_near_its_usual_value() -> None:
    walk = Walk(Random(7), 21.5, 0.1)
    values = [float(walk()) for _ in range(2_000)]
    assert abs(sum(values) / len(values) - 21.5) < 0.2
    assert len(set(values)) > 5


def test_a_rate_is_growth_over_time() -> None:
    counts, times = iter([100, 350, 300, 300]), iter([10.0, 12.5, 13.0, 13.0])
    rate = _Rate(lambda: next(counts), lambda: next(times))
    assert rate() == 100.0
    assert rate() == 0.0, "a counter that began anew"
    assert rate() == 0.0, "no time has passed"
