"""Runs on real processes: devices and nodes count the same messages."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hbroker.metrics.families import LOSSES
from hbroker.sim.rooms.plan import plan
from hbroker.sim.rooms.scaling import scale
from hbroker.sim.rooms.scenario import load
from tests.product.network import PROJECT, Network, environment, hbroker, network_up
from tests.waiting import until

PATIENCE = 90.0
LONG_PATIENCE = 600.0
PARTS = {"livingroom", "securitycams"}
"""Nodes that receive large messages, whose fragments they count."""

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
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Network, str]]:
    """A running network of topologies/home.yaml."""
    with network_up(PROJECT / "topologies" / "home.yaml", tmp_path_factory.mktemp("up")) as running:
        yield running


def _command(home: tuple[Network, str], *arguments: str) -> list[str]:
    network, root = home
    return [*hbroker("sim"), *arguments, "--root", root, "--state-dir", str(network.directory)]


def _run(command: list[str], patience: float = PATIENCE) -> tuple[int, str, str]:
    """Runs a command. Returns its exit code, standard output and standard error."""
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=PROJECT, env=environment(), timeout=patience, check=False
    )
    return done.returncode, done.stdout, done.stderr


def _run_json(home: tuple[Network, str], *arguments: str, patience: float = PATIENCE) -> dict[str, Any]:
    code, out, err = _run(_command(home, *arguments, "--json"), patience)
    assert code == 0, err
    result: dict[str, Any] = json.loads(out)
    return result


def _check_complete(result: dict[str, Any]) -> None:
    """Checks that every due message was published and received, and that the parts add up to the total."""
    total = result["total"]
    assert result["connected"] == result["devices"]
    assert result["failed"] == {}
    assert total["asked"] == total["published"] > 0
    assert total["expected"] == total["received"]
    for name in ("unsent", "lost", "duplicates", "disordered", "broken", "rejected"):
        assert total[name] == 0, name
    for part in ("rooms", "nodes"):
        for name in ("asked", "published", "bytes", "received", "expected", "acknowledged"):
            assert sum(row[name] for row in result[part]) == total[name], (part, name)


def test_devices_and_nodes_of_a_home_count_the_same_messages(home: tuple[Network, str]) -> None:
    result = _run_json(home, "home", "--duration", "8", "--speed", "3")
    _check_complete(result)
    assert result["native"] < result["clients"], "some come over the gateway"
    assert set(result["lateness"]) == {"count", "p50_ms", "p90_ms", "p99_ms", "max_ms"}
    assert result["achieved_per_s"] > 0.9 * result["asked_per_s"] > 0
    for node in result["nodes"]:
        assert {
            reason: n for reason, n in node["drops"].items() if reason in LOSSES - {"session_ended"}
        } == {}
        if node["node"] in PARTS:
            assert node["others"] > 100
        elif node["node"] != "root":
            assert node["others"] == 0, "it counted what the devices said, and nothing else"
    by_name = {node["node"]: node for node in result["nodes"]}
    assert by_name["securitycams"]["published"] > 100
    assert by_name["kitchen"]["published"] == next(
        row["published"] for row in result["rooms"] if row["room"] == "kitchen"
    )


def test_a_scenario_file_of_a_user_runs_and_prints_tables(home: tuple[Network, str], tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(HOUSE)
    code, out, err = _run(_command(home, str(file), "--duration", "3"))
    assert code == 0, err
    assert "12 of 12 devices connected" in out
    assert "all that is promised was kept" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert rows["ROOM"][:4] == ["ROOM", "DEVICES", "SAID/s", "SAID"]
    assert rows["NODE"][:3] == ["NODE", "SUBTREE", "SAID"]
    assert rows["securitycams"][2] == "0"
    assert "said/s" in err, "and how far it was, meanwhile"


def test_a_skewed_scenario_runs(home: tuple[Network, str], tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(HOUSE)
    arguments = (str(file), "--duration", "6", "--mqtt", "0", "--speed", "20", "--skew", "bedroom=0.9")
    result = _run_json(home, *arguments)
    _check_complete(result)
    shares = {row["room"]: row["published"] / result["total"]["published"] for row in result["rooms"]}
    assert 0.75 < shares["bedroom"] < 0.95


def test_ctrl_c_ends_a_run_early_and_prints_its_result(home: tuple[Network, str], tmp_path: Path) -> None:
    stderr_file = tmp_path / "stderr"
    command = _command(home, "home", "--duration", "300", "--mqtt", "0", "--json")
    with (
        stderr_file.open("w") as err,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=err, text=True, cwd=PROJECT, env=environment()
        ) as process,
    ):
        try:
            until(lambda: "playing" in stderr_file.read_text(), "it plays", PATIENCE)
            process.send_signal(signal.SIGINT)
            result = json.loads(process.communicate(timeout=PATIENCE)[0])
        finally:
            process.kill()
    assert process.returncode == 130
    assert result["interrupted"]
    assert result["seconds"] < 60
    assert result["total"]["expected"] == result["total"]["received"]


def test_invalid_arguments_are_reported_before_the_run(home: tuple[Network, str], tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(HOUSE + "colour: red\n")
    _, root = home
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
        found, _, err = _run([*hbroker("sim"), *arguments, *root_flag])
        assert found == code, (arguments, err)
        assert text in err, arguments


def test_a_gateway_that_does_not_answer_is_reported(home: tuple[Network, str]) -> None:
    code, _, err = _run(_command(home, "home", "--devices", "4", "--mqtt", "1", "--gateway", "127.0.0.1:9"))
    assert code == 1
    assert "could not connect" in err


def test_a_dry_run_prints_the_plan(home: tuple[Network, str]) -> None:
    result = _run_json(home, "city", "--devices", "500", "--dry-run")
    planned = plan(scale(load("city"), 500))
    assert (result["devices"], result["clients"]) == (500, len(planned.clients))
    assert result["streams"] == len(planned.streams)


@pytest.mark.usefixtures("in_long_form")
@pytest.mark.timeout(900)
def test_a_city_of_five_thousand_devices_runs(tmp_path: Path) -> None:
    with network_up(PROJECT / "topologies" / "city.yaml", tmp_path / "up") as city:
        arguments = ("city", "--devices", "5000", "--duration", "60", "--timeout", "20")
        result = _run_json(city, *arguments, patience=LONG_PATIENCE)
    _check_complete(result)
    assert result["devices"] == 5_000
    assert result["refusals"] == {}
    assert 0.98 < result["achieved_per_s"] / result["asked_per_s"] < 1.02
