"""Runs on real processes, as a user has them: what devices counted is what nodes counted, to the message."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbroker.cli.network.tree import LOSSES
from hbroker.sim.rooms.plan import plan
from hbroker.sim.rooms.scaling import scaled
from hbroker.sim.rooms.scenario import load
from tests.product.network import PROJECT, Network, environment, hbroker, network_up
from tests.waiting import until

PATIENCE = 90.0
LONG_PATIENCE = 600.0
PARTS = {"livingroom", "securitycams"}
"""Nodes that get large messages, which they count by their parts."""

HOUSE = """
top: home
speed: 5
mqtt: 0.5
rooms:
  - {path: kitchen, devices: {oven: 1, lamp: 2, lock: 1, meter: 1, thermometer: 1}}
  - {path: bedroom, devices: {tracker: 2, door: 1, motion: 1}}
watchers:
  - {name: board, filters: ["home/+/+/temperature"], over: mqtt}
  - {name: recorder, filters: ["home/+/+/energy", "home/+/presence/#"]}
people: {count: 2, stay: 5}
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Network, str]]:
    """topologies/home.yaml, running."""
    with network_up(PROJECT / "topologies" / "home.yaml", tmp_path_factory.mktemp("up")) as running:
        yield running


def _command(house: tuple[Network, str], *arguments: str) -> list[str]:
    network, root = house
    return [*hbroker("sim"), *arguments, "--root", root, "--state-dir", str(network.directory)]


def _ended(command: list[str], patience: float = PATIENCE) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=PROJECT, env=environment(), timeout=patience, check=False
    )
    return done.returncode, done.stdout, done.stderr


def _told(house: tuple[Network, str], *arguments: str, patience: float = PATIENCE) -> dict[str, Any]:
    code, out, err = _ended(_command(house, *arguments, "--json"), patience)
    assert code == 0, err
    on_result: dict[str, Any] = json.loads(out)
    return on_result


def _is_whole(on_result: dict[str, Any]) -> None:
    """All that was due was said, and everybody got it; the parts add up to the whole."""
    total = on_result["total"]
    assert on_result["connected"] == on_result["devices"]
    assert on_result["failed"] == {}
    assert total["asked"] == total["published"] > 0
    assert total["expected"] == total["received"]
    for name in ("unsent", "lost", "duplicates", "disordered", "broken", "rejected"):
        assert total[name] == 0, name
    for part in ("rooms", "nodes"):
        for name in ("asked", "published", "bytes", "received", "expected", "acknowledged"):
            assert sum(row[name] for row in on_result[part]) == total[name], (part, name)


def test_a_house_is_counted_alike_by_its_devices_and_its_nodes(house: tuple[Network, str]) -> None:
    on_result = _told(house, "home", "--duration", "8", "--speed", "3")
    _is_whole(on_result)
    assert on_result["native"] < on_result["clients"], "some come over the gateway"
    assert set(on_result["lateness"]) == {"count", "p50_ms", "p90_ms", "p99_ms", "max_ms"}
    assert on_result["achieved_per_s"] > 0.9 * on_result["asked_per_s"] > 0
    for node in on_result["nodes"]:
        assert {
            reason: n for reason, n in node["drops"].items() if reason in LOSSES - {"session_ended"}
        } == {}
        if node["node"] in PARTS:
            assert node["others"] > 100
        elif node["node"] != "root":
            assert node["others"] == 0, "it counted what the devices said, and nothing else"
    by_name = {node["node"]: node for node in on_result["nodes"]}
    assert by_name["securitycams"]["published"] > 100
    assert by_name["kitchen"]["published"] == next(
        row["published"] for row in on_result["rooms"] if row["room"] == "kitchen"
    )


def test_a_scenario_of_ones_own_with_tables(house: tuple[Network, str], tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(HOUSE)
    code, out, err = _ended(_command(house, str(file), "--duration", "3"))
    assert code == 0, err
    assert "12 of 12 devices connected" in out
    assert "all that is promised was kept" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert rows["ROOM"][:4] == ["ROOM", "DEVICES", "SAID/s", "SAID"]
    assert rows["NODE"][:3] == ["NODE", "SUBTREE", "SAID"]
    assert rows["securitycams"][2] == "0"
    assert "said/s" in err, "and how far it was, meanwhile"


def test_a_skewed_house(house: tuple[Network, str], tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(HOUSE)
    arguments = (str(file), "--duration", "6", "--mqtt", "0", "--speed", "20", "--skew", "bedroom=0.9")
    on_result = _told(house, *arguments)
    _is_whole(on_result)
    shares = {row["room"]: row["published"] / on_result["total"]["published"] for row in on_result["rooms"]}
    assert 0.75 < shares["bedroom"] < 0.95


def test_ctrl_c_ends_a_run_early_with_its_tables(house: tuple[Network, str], tmp_path: Path) -> None:
    publications = tmp_path / "stderr"
    command = _command(house, "home", "--duration", "300", "--mqtt", "0", "--json")
    with (
        publications.open("w") as err,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=err, text=True, cwd=PROJECT, env=environment()
        ) as process,
    ):
        try:
            until(lambda: "playing" in publications.read_text(), "it plays", PATIENCE)
            process.send_signal(signal.SIGINT)
            on_result = json.loads(process.communicate(timeout=PATIENCE)[0])
        finally:
            process.kill()
    assert process.returncode == 130
    assert on_result["interrupted"]
    assert on_result["seconds"] < 60
    assert on_result["total"]["expected"] == on_result["total"]["received"]


def test_what_cannot_be_is_told_before_anything_begins(house: tuple[Network, str], tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(HOUSE + "colour: red\n")
    _, root = house
    for arguments, code, text in [
        (["nowhere"], 2, "nowhere"),
        ([str(tmp_path / "bad.yaml")], 2, "unknown key 'colour'"),
        (["home", "--skew", "cellar=0.5"], 2, "no room 'cellar'"),
        (["home", "--skew", "kitchen"], 2, "kitchen=0.8"),
        (["home", "--mqtt", "2"], 2, "from 0 to 1"),
        (["home", "--state-dir", str(tmp_path)], 2, "--gateway HOST:PORT"),
        (["home", "--mqtt", "0", "--root", "127.0.0.1:9", "--timeout", "0.2"], 3, "no root answers"),
    ]:
        root_flag = [] if "--root" in arguments else ["--root", root]
        found, _, err = _ended([*hbroker("sim"), *arguments, *root_flag])
        assert found == code, (arguments, err)
        assert text in err, arguments


def test_a_gateway_that_does_not_answer_is_told(house: tuple[Network, str]) -> None:
    code, _, err = _ended(
        _command(house, "home", "--devices", "4", "--mqtt", "1", "--gateway", "127.0.0.1:9")
    )
    assert code == 1
    assert "could not connect" in err


def test_a_dry_run_tells_what_would_be(house: tuple[Network, str]) -> None:
    on_result = _told(house, "city", "--devices", "500", "--dry-run")
    planned = plan(scaled(load("city"), 500))
    assert (on_result["devices"], on_result["clients"]) == (500, len(planned.clients))
    assert on_result["streams"] == len(planned.streams)


@pytest.mark.usefixtures("in_long_form")
@pytest.mark.timeout(900)
def test_a_city_of_five_thousand(tmp_path: Path) -> None:
    with network_up(PROJECT / "topologies" / "city.yaml", tmp_path / "up") as city:
        arguments = ("city", "--devices", "5000", "--duration", "60", "--timeout", "20")
        on_result = _told(city, *arguments, patience=LONG_PATIENCE)
    _is_whole(on_result)
    assert on_result["devices"] == 5_000
    assert on_result["refusals"] == {}
    assert 0.98 < on_result["achieved_per_s"] / on_result["asked_per_s"] < 1.02
