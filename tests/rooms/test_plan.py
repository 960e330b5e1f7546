"""The plan of a scenario: repeatable, independent of the number of devices, with the configured shares."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker import topic_matches
from hbroker.sim.rooms.model.device import Publish
from hbroker.sim.rooms.plan import Client, Plan, plan
from hbroker.sim.rooms.scaling import apportion, rate_factors, scale, without_mqtt
from hbroker.sim.rooms.scenario import bundled_scenarios, load
from hbroker.sim.rooms.scenario.settings import Skew


def _publications(client: Client, seconds: float) -> list[tuple[float, str, bytes]]:
    within = takewhile(lambda event: event[0] < seconds, client.events())
    return [
        (at, client.streams[action.stream].topic, action.body)
        for at, action in within
        if isinstance(action, Publish)
    ]


@pytest.mark.parametrize("name", bundled_scenarios())
def test_equal_seeds_give_equal_plans_and_events(name: str) -> None:
    one, other = plan(load(name)), plan(load(name))
    assert one.streams == other.streams
    assert one.receivers == other.receivers
    for mine, its in zip(one.clients, other.clients, strict=True):
        assert (mine.name, mine.is_native, mine.filters) == (its.name, its.is_native, its.filters)
    for mine, its in list(zip(one.clients, other.clients, strict=True))[::7]:
        assert _publications(mine, 20.0) == _publications(its, 20.0)
        assert _publications(mine, 20.0) == _publications(mine, 20.0), "and again"


def test_different_seeds_give_different_events() -> None:
    scenario = load("home")
    one, other = plan(scenario), plan(replace(scenario, seed=2))
    pairs = list(zip(one.clients, other.clients, strict=True))
    assert sum(_publications(mine, 60.0) != _publications(its, 60.0) for mine, its in pairs) > 40
    assert [mine.is_native for mine, _ in pairs] != [its.is_native for _, its in pairs]


def test_the_events_of_a_device_do_not_depend_on_the_other_devices() -> None:
    small, large = plan(load("office")), plan(scale(load("office"), 1_500))
    by_name = {client.name: client for client in large.clients}
    same = [client for client in small.clients if client.is_device and client.name in by_name]
    assert len(same) > 100
    for client in same[::9]:
        if client.role != "person":
            assert _publications(client, 30.0) == _publications(by_name[client.name], 30.0)


@pytest.mark.parametrize("devices", [1, 10, 48, 1_000, 5_000])
def test_a_scenario_has_the_requested_number_of_devices(devices: int) -> None:
    for name in ("home", "city"):
        planned = plan(scale(load(name), devices))
        assert planned.devices == devices
        assert len({client.name for client in planned.clients}) == len(planned.clients)


@given(st.integers(0, 100_000), st.lists(st.integers(0, 500), min_size=1, max_size=40))
def test_apportioned_counts_are_integers_and_off_by_less_than_one(total: int, weights: list[int]) -> None:
    counts = apportion(total, weights)
    whole = sum(weights)
    assert sum(counts) == (total if whole else 0)
    for found, weight in zip(counts, weights, strict=True):
        assert abs(found - total * weight / max(whole, 1)) < 1 or not whole


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_the_share_of_mqtt_clients_is_as_configured(share: float) -> None:
    scenario = replace(scale(load("city"), 2_000), mqtt=share)
    planned = plan(scenario)
    mqtt = sum(client.is_device and not client.is_native for client in planned.clients)
    pinned = sum(client.role == "camera" for client in planned.clients)
    assert mqtt == min(round(share * 2_000), 2_000 - pinned)
    assert all(client.is_native for client in plan(without_mqtt(scenario)).clients)


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_a_skew_moves_traffic_to_a_room_and_keeps_the_total(share: float) -> None:
    scenario = load("home")
    skewed = replace(scenario, skew=Skew("bedroom", share))
    assert set(rate_factors(scenario).values()) == {1.0}
    assert abs(plan(skewed).rate - plan(scenario).rate) < 1e-6
    publications: Counter[str] = Counter()
    for client in plan(skewed).clients:
        if client.role not in ("person", "updater"):
            publications[client.room] += len(_publications(client, 600.0)) * (
                2 if client.role == "controller" else 1
            )
    assert abs(publications["bedroom"] / publications.total() - share) < 0.05


def test_each_stream_goes_to_the_clients_with_a_matching_filter_except_its_own() -> None:
    planned = plan(load("home"))
    owner = {stream.number: client for client in planned.clients for stream in client.streams}
    for stream in planned.streams:
        expected = tuple(
            client.number
            for client in planned.clients
            if any(topic_matches(filter, stream.topic) for filter in client.filters)
            and not (client.no_local and client is owner[stream.number])
        )
        assert planned.receivers[stream.number] == expected


def test_commands_reach_their_devices_and_firmware_images_their_kind() -> None:
    planned = plan(load("home"))
    by_topic = {stream.topic: stream for stream in planned.streams}
    for client in planned.clients:
        for topic, answer in client.answers.items():
            assert planned.receivers[by_topic[topic].number] == (client.number,)
            assert client.streams[answer].topic != topic
    lamps = _receivers_of(planned, "home/livingroom/firmware")
    assert Counter(client.role for client in lamps) == {"lamp": 4, "controller": 1}


def _receivers_of(planned: Plan, topic: str) -> list[Client]:
    (stream,) = (stream for stream in planned.streams if stream.topic == topic)
    return [planned.clients[number] for number in planned.receivers[stream.number]]


def test_events_have_the_expected_rate() -> None:
    """By day, for half an hour. The answers to commands count, too."""
    planned = plan(load("office"))
    publications = 0
    for client in planned.clients:
        events = sum(
            1
            for at, e in takewhile(lambda event: event[0] < 1_800.0, client.events())
            if isinstance(e, Publish)
        )
        publications += events * (2 if client.role == "controller" else 1)
    assert abs(publications / 1_800.0 / planned.rate - 1) < 0.03
