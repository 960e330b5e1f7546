"""`hbroker store`: what a node has on disk, and whether it is intact."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from hbroker import sync
from tests.product.network import PATIENCE, network_of, run_hbroker

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700", durability: fsync}
"""
COUNT = 2_000


def run(action: str, directory: Path | str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs `hbroker store`."""
    return run_hbroker("store", action, directory, *flags)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a node that has ended. Messages wait in it for two clients."""
    directory = tmp_path_factory.mktemp("store")
    with network_of(FILE, directory) as (_, root):
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


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_an_exported_store_can_be_imported(stopped: Path, tmp_path: Path, kind: str) -> None:
    table, again = tmp_path / f"all.{kind}", tmp_path / "again.store"
    assert run("export", stopped, str(table)).returncode == 0
    if kind == "parquet":
        rows = pq.read_table(table).to_pylist()
    else:
        rows = [json.loads(line) for line in table.read_text().splitlines()]
    of_cellar = [row for row in rows if row.get("client") == "cellar"]
    payloads = [row["payload"] for row in of_cellar]
    expected = [b"%090d" % number for number in range(10)]
    assert payloads == (expected if kind == "parquet" else [base64.b64encode(p).decode() for p in expected])
    assert {(row["topic"], row["qos"]) for row in of_cellar} == {("cellar", 1)}
    assert sorted(row["topic"] for row in rows if row["retained"]) == [f"kept/{n}" for n in range(7)]
    assert run("import", table, str(again)).returncode == 0
    before, after = (json.loads(run("info", store, "--json").stdout) for store in (stopped, again))
    waiting = [(session["session"], session["messages"]) for session in before["sessions"]]
    assert [(session["session"], session["messages"]) for session in after["sessions"]] == waiting
    assert after["retained"] == 7
    second = tmp_path / f"again.{kind}"
    assert run("export", again, str(second)).returncode == 0
    assert len(second.read_bytes()) > 10_000


def test_compacting_gives_back_what_is_not_needed(tmp_path: Path) -> None:

    def connect(root: str, name: str) -> sync.Client:
        return sync.connect(root, client_id=name, session_expiry=3_600, session_key="k")

    with network_of(FILE, tmp_path) as (_, root):
        for name in ("reader", "absent"):
            with connect(root, name) as client:
                client.subscribe(name, qos=1)
        with sync.connect(root) as client:
            for number in range(100):
                client.publish_many([("reader", b"%0900d" % number)] * 50, qos=1)
                client.publish("absent", b"%0900d" % number, qos=1)
        with connect(root, "reader") as client, client.subscribe("reader", qos=1) as messages:
            for _ in range(5_000):
                assert messages.next(timeout=PATIENCE) is not None
    (store,) = (tmp_path / "state").glob("*/root.cuts.store")
    done = json.loads(run("compact", store, "--json").stdout)
    assert done["bytes_before"] > 4_000_000
    assert done["bytes_after"] < 200_000
    (absent,) = json.loads(run("info", store, "--json").stdout)["sessions"]
    assert (absent["client"], absent["messages"]) == ("absent", 100)
    assert run("verify", store).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("merge", "{store}"), "merge is followed by A B DIR"),
        (("merge", "{store}", "{store}", "{store}"), "exists already"),
        (("compact", "nowhere"), "nowhere is no store"),
        (("import", "{here}", "{new}"), "is no table of `hbroker store export`"),
    ],
)
def test_wrong_paths_are_told(
    stopped: Path, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    places = {"store": str(stopped), "here": __file__, "new": str(tmp_path / "new.store")}
    action, *paths = [argument.format(**places) for argument in arguments]
    done = run(action, *paths)
    assert done.returncode in (1, 2)
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "new.store").exists()
