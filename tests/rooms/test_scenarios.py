"""Scenario files: the built-in ones fit their topologies, and errors are reported with their line."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker import topology
from hbroker.errors import ConfigErrors
from hbroker.sim.rooms.plan import plan
from hbroker.sim.rooms.scenario import Scenario, bundled_scenarios, load, parse
from hbroker.sim.rooms.scenario.files import KINDS
from hbroker.sim.rooms.scenario.ranges import expand, substitute
from hbroker.sim.rooms.scenario.settings import Frames, Periodic, Poisson, Transport
from hbroker.subtree import is_within

TOPOLOGIES = Path(__file__).parents[2] / "topologies"
ROOMS = "top: home\nrooms:\n  - {path: kitchen, devices: {thermometer: 2}}\n"


def parsed(text: str) -> Scenario:
    return parse(text, file="my.yaml", common=(KINDS.read_text("utf-8"), str(KINDS)))


def errors_of(text: str) -> list[tuple[int | None, str]]:
    with pytest.raises(ConfigErrors) as raised:
        parsed(text)
    return [(error.line, error.message) for error in raised.value.errors]


def test_the_built_in_scenarios_are_listed() -> None:
    assert bundled_scenarios() == ("campus", "city", "factory", "home", "office")


@pytest.mark.parametrize("name", ["campus", "city", "factory", "home", "office"])
def test_each_built_in_scenario_fits_its_topology(name: str) -> None:
    """Every node without children owns some of the topics, and there is a gateway if the scenario needs
    one."""
    scenario, network = load(name), topology.load(TOPOLOGIES / f"{name}.yaml")
    planned = plan(scenario)
    topics = [stream.topic for stream in planned.streams]
    cut = {node.subtree for node in network.nodes if node.subtree}
    leaves = {subtree for subtree in cut if not any(is_within(other, subtree) for other in cut - {subtree})}
    assert all(any(is_within(topic, subtree) for topic in topics) for subtree in leaves)
    assert bool(network.gateways) or all(client.is_native for client in planned.clients)
    assert planned.devices > 40
    assert planned.rate > 10
    assert {receiver for receivers in planned.receivers for receiver in receivers} >= {
        client.number for client in planned.clients if client.role == "watcher"
    }, "every watcher has something to watch"
    for client in planned.clients:
        assert all(at >= 0 for at, _ in islice(client.events(), 3))


def test_the_cameras_have_the_sizes_of_the_paper() -> None:
    """5 to 60 KB, 5 to 15 frames a second."""
    camera = load("home").kinds["camera"]
    (frame,) = (report for report in camera.reports if isinstance(report.pattern, Frames))
    assert isinstance(frame.pattern, Frames)
    assert 5 <= frame.pattern.per_s <= 15
    assert (frame.size.least, frame.size.most) == (5_000, 60_000)


def test_a_scenario_file_is_parsed() -> None:
    scenario = parsed(
        """
about: two rooms
top: house/left
seed: 9
speed: 2.5
clock: "18:30"
mqtt: 0.25
kinds:
  drum:
    reports:
      beat: {every: 0.5, jitter: 0.1, drift_ppm: 3, aligned: true, qos: 2, retain: true, bytes: [3, 9]}
      roll: {per_hour: 4, at_night: 0, burst: {size: 7, every: 0.1}}
      film: {frames_per_s: 12.5, key_every: 6}
    flaps: {up: 10, down: 1}
    over: mqtt
rooms:
  - {path: "[1-2]/attic", devices: {drum: 3, lamp: 1}}
watchers:
  - {name: "w[1-2]", filters: ["house/left/$1/#"], qos: 1, over: mqtt}
people: {count: 2, stay: 5, over: native}
updates:
  - {at: 3, area: "1", bytes: 1000, kinds: [lamp]}
skew: {room: 1/attic, share: 0.75}
"""
    )
    assert (scenario.name, scenario.top, scenario.seed, scenario.speed) == ("my", "house/left", 9, 2.5)
    assert (scenario.clock_s, scenario.mqtt, scenario.devices) == (66_600.0, 0.25, 8)
    drum = scenario.kinds["drum"]
    beat, roll, film = drum.reports
    assert beat.pattern == Periodic(0.5, 0.1, 3.0, aligned=True)
    assert (beat.qos, beat.retain, beat.size.least, beat.size.most) == (2, True, 3, 9)
    assert isinstance(roll.pattern, Poisson)
    assert roll.pattern.burst is not None
    assert roll.pattern.at_night == 0.0
    assert isinstance(film.pattern, Frames)
    assert drum.absence is not None
    assert drum.absence.is_abrupt
    assert drum.transport is Transport.MQTT
    assert [room.path for room in scenario.rooms] == ["1/attic", "2/attic"]
    assert [watcher.filters for watcher in scenario.watchers] == [("house/left/1/#",), ("house/left/2/#",)]
    assert scenario.skew is not None


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("top: home\n", 1, "has no `rooms`"),
        ("rooms:\n  - {path: k, devices: {lamp: 1}}\n", 1, "has no `top`"),
        (ROOMS + "colour: red\n", 4, "unknown key 'colour'"),
        (ROOMS + "mqtt: 1.5\n", 4, "mqtt is '1.5'"),
        (ROOMS + "mqtt: half\n", 4, "mqtt is 'half'"),
        (ROOMS + "speed: .nan\n", 4, "speed is '.nan'"),
        (ROOMS + "clock: 25:00\n", 4, "not a"),
        (ROOMS + 'clock: "25:00"\n', 4, "not a time of day"),
        ("top: home/#\nrooms:\n  - {path: k, devices: {lamp: 1}}\n", 1, "no branch of a topic"),
        ("top: $SYS\nrooms:\n  - {path: k, devices: {lamp: 1}}\n", 1, "no branch of a topic"),
        ("top: home\nrooms:\n  - {path: k+, devices: {lamp: 1}}\n", 3, "no branch of a topic"),
        ("top: home\nrooms:\n  - {path: k, devices: {lampp: 1}}\n", 3, "no kind 'lampp'"),
        ("top: home\nrooms:\n  - {path: k, devices: {lamp: many}}\n", 3, "not a whole number"),
        ('top: home\nrooms:\n  - {path: "k[4-2]", devices: {lamp: 1}}\n', 3, "[4-2] is empty"),
        ('top: home\nrooms:\n  - {path: "k[1-900000]", devices: {lamp: 1}}\n', 3, "more than"),
        (
            "top: home\nrooms:\n  - {path: k, devices: {lamp: 1}}\n  - {path: k/l, devices: {lamp: 1}}\n",
            3,
            "lies in",
        ),
        (
            "top: home\nrooms:\n  - {path: k, devices: {lamp: 1}}\n  - {path: k, devices: {lock: 1}}\n",
            3,
            "lies in",
        ),
        (ROOMS + "kinds:\n  x: {reports: {a: {qos: 1}}}\n", 5, "no pattern"),
        (ROOMS + "kinds:\n  x: {reports: {a: {every: 1, per_hour: 3}}}\n", 5, "several patterns"),
        (ROOMS + "kinds:\n  x: {reports: {a: {every: 1, at_night: 3}}}\n", 5, "`at_night` does not go with"),
        (ROOMS + "kinds:\n  x: {reports: {a: {every: 1, qos: 3}}}\n", 5, "out of range"),
        (ROOMS + "kinds:\n  x: {reports: {a: {every: 1, bytes: [9, 3]}}}\n", 5, "9 is over 3"),
        (ROOMS + "kinds:\n  x: {reports: {a: {every: 0}}}\n", 5, "every is '0'"),
        (ROOMS + "kinds:\n  x: {over: mqtt}\n", 5, "says nothing"),
        (ROOMS + "kinds:\n  x: {over: tcp, reports: {a: {every: 1}}}\n", 5, "no way into the network"),
        (
            ROOMS + "kinds:\n  x: {commands: {a: {every: 1}}, flaps: {up: 1, down: 1}}\n",
            5,
            "obeys no command",
        ),
        (ROOMS + "kinds:\n  x: {commands: {a: {every: 1, answer: a}}}\n", 5, "would be a command"),
        (ROOMS + "kinds:\n  x: {commands: {a: {frames_per_s: 1}}}\n", 5, "unknown key 'frames_per_s'"),
        (ROOMS + "watchers: [{name: w, filters: [a/#/b]}]\n", 4, "no topic filter"),
        (ROOMS + "watchers: [{name: w, filters: [home/$1]}]\n", 4, "$1 refers to a range"),
        (ROOMS + "updates: [{at: 1, area: cellar, bytes: 100}]\n", 4, "no room is in 'cellar'"),
        (ROOMS + "skew: {room: cellar, share: 0.5}\n", 4, "no room 'cellar'"),
        (ROOMS + "people: {count: 3}\n", 4, "has no `stay`"),
        ("top: [home\n", 2, "not valid YAML"),
        ("", None, "empty"),
    ],
)
def test_an_error_is_reported_with_its_line(text: str, line: int | None, expected: str) -> None:
    errors = errors_of(text)
    assert any(found == line and expected in message for found, message in errors), errors


def test_all_errors_are_reported_at_once() -> None:
    assert len(errors_of(ROOMS + "mqtt: 2\nspeed: x\nfoo: 1\n")) == 3


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(ConfigErrors, match="nowhere"):
        load("nowhere")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=3))
def test_a_range_stands_for_each_of_its_numbers_once(ranges: list[tuple[int, int]]) -> None:
    pattern = "x" + "/".join(f"[{low}-{low + more}]" for low, more in ranges)
    names = list(expand(pattern))
    total = 1
    for _, more in ranges:
        total *= more + 1
    assert len({name for name, _ in names}) == len(names) == total
    for name, numbers in names:
        assert name == "x" + "/".join(numbers)
        assert substitute("/".join(f"${i}" for i in range(1, len(numbers) + 1)), numbers) == "/".join(numbers)


@given(st.text(max_size=60))
def test_arbitrary_text_raises_only_config_errors(text: str) -> None:
    with suppress(ConfigErrors):
        parse(text)
