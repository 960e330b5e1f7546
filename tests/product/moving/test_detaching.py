"""`hbroker up --detach` (docs/commands.md): it returns when the network is ready, and `hbroker down` stops
it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.product.network import run_hbroker

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
"""


@pytest.fixture
def topology_file(tmp_path: Path) -> Iterator[Path]:
    """A topology file, whose network is stopped at the end."""
    file = tmp_path / "house.yaml"
    file.write_text(FILE)
    try:
        yield file
    finally:
        run_hbroker("down", "--state-dir", tmp_path / "state", "house")


def up(topology_file: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return run_hbroker(
        "up", "--detach", "--any-port", "--state-dir", topology_file.parent / "state", *flags, topology_file
    )


def test_up_detach_returns_when_the_network_is_ready_and_the_network_goes_on(topology_file: Path) -> None:
    launched = up(topology_file, "--json")
    assert launched.returncode == 0, launched.stderr
    ready = json.loads(launched.stdout.splitlines()[-1])
    assert ready["event"] == "ready"
    published = run_hbroker("resolve", "--root", ready["root"], "home/kitchen/oven", "--json")
    assert json.loads(published.stdout)["owner"] == "kitchen"
    status = run_hbroker("status", "--state-dir", topology_file.parent / "state", "--json")
    assert (status.returncode, json.loads(status.stdout)["up"]) == (0, True)
    down = run_hbroker("down", "--state-dir", topology_file.parent / "state")
    assert (down.returncode, down.stdout) == (0, "stopped house\n")
    assert "stopped" in (topology_file.parent / "state" / "house" / "launcher.log").read_text()


def test_up_detach_reports_why_the_launcher_has_ended(topology_file: Path) -> None:
    assert up(topology_file).returncode == 0
    again = up(topology_file)
    assert again.returncode == 1
    assert "runs already" in again.stdout
    topology_file.write_text(FILE.replace("subtree", "subtre"))
    assert up(topology_file).returncode == 2
