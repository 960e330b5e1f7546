"""`hbroker up` runs the HTTP API of its network."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from hbroker.cli import main
from hbroker.cli.exits import FAILED
from hbroker.cli.network import up
from hbroker.errors import ConfigError
from hbroker.topology import Topology
from hbroker.topology.parse import parse
from tests.product.network import PATIENCE, Network, network_up, run_hbroker
from tests.waiting import until

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:0"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:0"}
"""
Capture = pytest.CaptureFixture[str]


def house(folder: Path, more: str = "") -> Path:
    """A topology file. `more`: further sections."""
    file = folder / "house.yaml"
    file.write_text(FILE + more)
    return file


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with network_up(house(tmp_path), tmp_path / "state", has_admin=True) as (running, _):
        yield running


def nodes_of(network: Network) -> list[str]:
    """The names of the nodes, from the API, once it knows both."""
    token = (network.directory / "house" / "operator.token").read_text().strip()

    def names() -> list[str]:
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx.get(f"{network.state()['admin']['url']}/v1/nodes", headers=headers, timeout=PATIENCE)
        return sorted(node["name"] for node in answer.raise_for_status().json()["items"])

    until(lambda: names() == ["kitchen", "root"], "the nodes", PATIENCE, found=names)
    return names()


def test_it_answers_from_when_the_network_is_ready(network: Network) -> None:
    url = network.state()["admin"]["url"]
    assert url.startswith("http://127.0.0.1:")
    # Its process may still load, so this request waits in the backlog.
    assert httpx.get(f"{url}/healthz", timeout=PATIENCE).status_code == 200
    assert nodes_of(network) == ["kitchen", "root"]


def test_it_is_started_again_at_the_same_address(network: Network) -> None:
    nodes_of(network)
    before: dict[str, Any] = network.state()["admin"]
    psutil.Process(before["pid"]).kill()
    assert network.event("ended")["node"] == "admin"
    assert nodes_of(network) == ["kitchen", "root"]
    until(lambda: network.state()["admin"]["state"] == "up", "it answers again", PATIENCE)
    after = network.state()["admin"]
    assert (after["url"], after["restarts"]) == (before["url"], 1)


def test_status_and_ready_tell_its_address(tmp_path: Path) -> None:
    state = tmp_path / "state"
    flags = ("--any-port", "--state-dir", state)
    launched = run_hbroker("up", "--detach", *flags, house(tmp_path))
    try:
        told = json.loads(run_hbroker("status", "--state-dir", state, "--json").stdout)
        assert f", dashboard {told['admin']['url']}, in " in launched.stdout
        assert told["admin"]["url"] in run_hbroker("status", "--state-dir", state).stdout
    finally:
        assert run_hbroker("down", "--state-dir", state).returncode == 0


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_another_program_has_its_port(tmp_path: Path, capsys: Capture, *, is_asked_for: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        if is_asked_for:
            file = house(tmp_path, f'admin: {{listen: "127.0.0.1:{port}"}}')
            assert main(["up", str(file), "--state-dir", str(tmp_path / "state")]) == FAILED
            assert f"127.0.0.1:{port} is in use by another process" in capsys.readouterr().err
            return
        from hbroker.config import AdminSettings
        from hbroker.runtime.launcher.ports import listen_for_admin

        with listen_for_admin(AdminSettings(listen=("127.0.0.1", port))) as listener:
            assert listener.getsockname()[1] not in (0, port)


@pytest.mark.parametrize(("more", "flags"), [("admin: off\n", ()), ("", ("--no-admin",))])
def test_it_can_be_left_out(tmp_path: Path, more: str, flags: tuple[str, ...]) -> None:
    file = house(tmp_path, more)
    flags = ("--any-port", *flags)
    with network_up(file, tmp_path / "state", flags, has_admin=True) as (network, _):
        assert network.state()["admin"] is None
        assert not (network.directory / "house" / "admin.log").exists()


def without_libraries(monkeypatch: pytest.MonkeyPatch, text: str) -> Topology:
    """What is started of a topology where the extra `admin` is not installed."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    return up._with_admin(parse(text, file="house.yaml"), "house.yaml", is_wanted=True)


def test_a_network_runs_without_its_libraries(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert without_libraries(monkeypatch, FILE).admin is None
    assert "the extra `admin` is not installed; pip install" in capsys.readouterr().err


def test_a_file_that_asks_for_it_needs_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="the file has `admin`"):
        without_libraries(monkeypatch, FILE + "admin: on\n")
