"""`hbroker store`: what a node has on disk, and whether it is intact."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hbroker import sync
from tests.product.network import PATIENCE, PROJECT, environment, hbroker, network_up

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700", durability: fsync}
"""
COUNT = 2_000


def run(action: str, directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs `hbroker store`."""
    command = [*hbroker("store"), action, str(directory), *flags]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=PROJECT, env=environment()
    )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a node that has ended. Messages wait in it for two clients."""
    directory = tmp_path_factory.mktemp("store")
    file = directory / "one.yaml"
    file.write_text(FILE)
    with network_up(file, directory / "state") as (_, root):
        for name, count in (("attic", COUNT), ("cellar", 10)):
            with sync.connect(root, client_id=name, session_expiry=3_600, session_key="k") as client:
                client.subscribe(name, qos=1)
            with sync.connect(root) as client:
                client.publish_many([(name, b"%090d" % number) for number in range(count)], qos=1)
        with sync.connect(root) as client:
            client.publish_many([(f"kept/{number}", b"x") for number in range(7)], qos=1, retain=True)
        (store,) = (directory / "state").glob("*/root.cuts.store")
        in_use = run("info", store)
        assert in_use.returncode == 1
        assert "another process uses the store" in in_use.stderr
        assert run("verify", store).returncode == 0, "a node may run meanwhile"
    return store


def test_info_lists_the_sessions_with_their_messages(stopped: Path) -> None:
    shown = json.loads(run("info", stopped, "--json").stdout)
    assert [(session["client"], session["messages"]) for session in shown["sessions"]] == [
        ("attic", COUNT),
        ("cellar", 10),
    ]
    assert shown["retained"] == 7
    assert shown["bytes_on_disk"] > shown["sessions"][0]["bytes"] > COUNT * 90
    lines = run("info", stopped).stdout.splitlines()
    assert lines[0].startswith("2,010 messages for 2 sessions; 7 retained messages; ")
    assert lines[2].split()[0] == "attic"


def test_verify_finds_a_flipped_bit_with_its_file_and_offset(stopped: Path) -> None:
    intact = run("verify", stopped)
    assert (intact.returncode, intact.stdout.splitlines()[-1]) == (0, "every record is intact")
    (segment,) = (stopped / "log").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[50_000] ^= 1
    segment.write_bytes(content)
    damaged = run("verify", stopped)
    assert damaged.returncode == 1
    assert f"{segment}: offset " in damaged.stdout
    (place,) = json.loads(run("verify", stopped, "--json").stdout)["damage"]
    assert place["promised"]
    assert 49_000 < place["offset"] <= 50_000
    content[50_000] ^= 1
    segment.write_bytes(content)


def test_a_folder_that_is_no_store_is_named(tmp_path: Path) -> None:
    wrong = run("verify", tmp_path)
    assert wrong.returncode == 2
    assert f"{tmp_path} is no store: it has no folder `log`" in wrong.stderr
