"""A network whose topology has no join key generates one: joins and orders must prove it. Security is off, so
that nothing else keeps strangers out."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.product.home import FILE, HomeNetwork
from tests.product.network import PATIENCE, PROJECT, Network, environment, hbroker, network_of, run_hbroker
from tests.waiting import until

CELLAR = ("--name", "cellar", "--subtree", "home/cellar", "--listen", "127.0.0.1:0")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Network, str]]:
    with network_of(f"security: off\n{FILE}", tmp_path_factory.mktemp("own_key")) as running:
        yield running


@pytest.fixture(autouse=True)
def _another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process is started with finds no network of this host, unless a flag names the folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no_state"))


def key_file(network: Network) -> Path:
    return network.directory / "house" / "join.key"


@contextmanager
def cellar(directory: Path, *flags: str) -> Iterator[str]:
    """A node that is started by hand. Yields its first line that says that it has joined or was refused."""
    log = directory / "cellar.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [*hbroker("node"), *CELLAR, *flags], stdout=said, stderr=said, cwd=PROJECT, env=environment()
        )
    try:
        words = ("ready ", "refused")

        def told() -> list[str]:
            return [line for line in log.read_text().splitlines() if any(word in line for word in words)]

        until(lambda: bool(told()), "it has joined, or was refused", PATIENCE, found=log.read_text)
        yield told()[0]
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_a_node_joins_only_with_the_key(network: tuple[Network, str], tmp_path: Path) -> None:
    running, root = network
    nowhere = ("--state-dir", str(tmp_path / "nothing"))
    with cellar(tmp_path, "--root", root, *nowhere) as result:
        assert "NOT_AUTHORIZED" in result
    # as on another host to which the file was copied
    with cellar(tmp_path, "--root", root, *nowhere, "--join-key-file", str(key_file(running))) as result:
        assert result.startswith("ready cellar")
    with cellar(tmp_path, "--root", root, "--state-dir", str(running.directory)) as result:
        assert result.startswith("ready cellar")


def test_orders_use_the_key_on_this_host(network: tuple[Network, str], tmp_path: Path) -> None:
    running, root = network
    without = run_hbroker("move", "home/kitchen", "bedroom", "--root", root, "--state-dir", tmp_path)
    assert without.returncode == 1
    assert "give --join-key-file" in without.stderr
    home = HomeNetwork(running, root)
    assert home.done("move", "home/kitchen", "bedroom").startswith("home/kitchen went from kitchen")
    home.done("move", "home/kitchen", "kitchen")


def test_the_key_is_in_no_log_and_on_no_command_line(network: tuple[Network, str]) -> None:
    running, _ = network
    key = key_file(running).read_text().strip()
    holding = [
        path for path in running.directory.rglob("*") if path.is_file() and key in path.read_text("latin-1")
    ]
    assert holding == [key_file(running)]
    processes = [psutil.Process(running.process.pid), *running.processes().values()]
    assert not any(key in word for process in processes for word in process.cmdline())


def test_the_next_start_has_the_same_key(tmp_path: Path) -> None:
    topology = 'nodes: [{name: root, subtree: "", listen: "127.0.0.1:0"}]\n'
    keys = []
    for _ in range(2):
        with network_of(topology, tmp_path) as (running, _):
            keys.append(key_file(running).read_text())
    assert keys[0] == keys[1]
