"""`hbroker join`: a node on another host becomes part of a network, with one file and one line."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hbroker import sync
from hbroker.cli import main
from hbroker.cli.exits import DONE, USAGE
from hbroker.runtime.hosts.join_token import JoinToken
from tests.product.network import PATIENCE, Network, network_of, run_hbroker
from tests.product.node import started

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700", durability: none}
"""
Capture = pytest.CaptureFixture[str]


class House:
    """A running network, and a join token for a node of it."""

    def __init__(self, network: Network, root: str, folder: Path) -> None:
        self.root = root
        self.state = Path(network.directory)
        self.token = folder / "kitchen.join"
        self.node = folder / "kitchen"

    def issue(self, *subtrees: str) -> None:
        subtrees = subtrees or ("home/kitchen", "home/attic")
        flags = ("--out", self.token, "--root", self.root, "--state-dir", self.state)
        run_hbroker("keys", "issue", "kitchen", *subtrees, *flags, check=True)

    def join(self, *flags: str) -> int:
        where = ("--token", str(self.token), "--dir", str(self.node), "--root", self.root)
        return main(["join", *where, *flags, "--no-start"])

    def owners(self, *topics: str) -> list[str]:
        folder = next(self.state.glob("*/authority")).parent
        authority, token = folder / "authority" / "authority.crt", folder / "operator.token"
        with sync.connect(self.root, authority=authority, token=token) as client:
            return [client.resolve(topic).owner for topic in topics]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    with network_of(FILE, folder) as (network, root):
        house = House(network, root, folder)
        house.issue()
        yield house


@pytest.fixture
def house(shared: House, tmp_path: Path) -> House:
    shared.node = tmp_path / "kitchen"
    return shared


def test_a_node_joins_with_one_file_and_joins_again_after_a_restart(house: House) -> None:
    assert house.join("--listen", "127.0.0.1:0") == DONE
    secrets = [file for file in house.node.iterdir() if file.suffix == ".key"]
    assert {file.name: file.stat().st_mode & 0o777 for file in secrets} == {
        "kitchen.key": 0o600,
        "join.key": 0o600,
    }
    assert house.node.stat().st_mode & 0o777 == 0o700
    for _ in range(2):
        with started("node", "--config", str(house.node / "node.yaml")):
            topics = ("home/kitchen/oven", "home/attic/box", "home/cellar/wine")
            assert house.owners(*topics) == ["kitchen", "kitchen", "root"]


def test_in_the_background_it_returns_once_the_node_has_joined(house: House) -> None:
    flags = ("--token", house.token, "--dir", house.node, "--root", house.root, "--listen", "127.0.0.1:0")
    part = ("--name", "kitchen", "--subtree", "home/kitchen")
    done = run_hbroker("join", *flags, *part, "--detach", check=True)
    [process] = [
        each
        for each in psutil.process_iter(["cmdline"])
        if str(house.node / "node.yaml") in (each.info["cmdline"] or [])
    ]
    try:
        assert re.search(r"^ready kitchen", done.stdout, re.MULTILINE), done.stdout
        assert house.owners("home/kitchen/oven", "home/attic/box") == ["kitchen", "root"]
    finally:
        os.kill(process.pid, signal.SIGTERM)
        psutil.wait_procs([process], PATIENCE)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--name", "cellar"), "the token is for the node kitchen"),
        (("--subtree", "home/cellar"), "the token allows home/kitchen, home/attic, and not home/cellar"),
        (("--subtree", ""), "and not"),
        (("--detach",), "exclude each other"),
    ],
)
def test_flags_that_contradict_the_token_are_refused(
    house: House, capsys: Capture, flags: tuple[str, ...], said: str
) -> None:
    assert house.join(*flags) == USAGE
    assert said in capsys.readouterr().err
    assert not house.node.exists()


def test_a_second_token_replaces_the_keys_and_not_the_settings(house: House, capsys: Capture) -> None:
    assert house.join("--listen", "127.0.0.1:0") == DONE
    file = house.node / "node.yaml"
    file.write_text(file.read_text().replace("info", "debug"))
    before = (house.node / "kitchen.crt").read_bytes()
    for other in (("--listen", "127.0.0.1:7799"), ("--subtree", "home/attic"), ("--advertise", "192.0.2.1")):
        assert house.join(*other) == USAGE
        assert f"has joined already, and keeps its settings; change the file, or leave out {other[0]}" in (
            capsys.readouterr().err
        )
    assert house.join("--listen", "127.0.0.1:0") == DONE, "as before"
    house.issue()
    assert main(["join", "--token", str(house.token), "--dir", str(house.node), "--no-start"]) == DONE
    assert "SIGHUP" in capsys.readouterr().out
    assert "debug" in file.read_text()
    assert (house.node / "kitchen.crt").read_bytes() != before


def test_a_folder_of_another_node_is_left_alone(house: House, capsys: Capture) -> None:
    house.node.mkdir()
    (house.node / "attic.key").write_text("a secret")
    assert house.join() == USAGE
    assert "the folder is that of the node attic" in capsys.readouterr().err
    assert [file.name for file in house.node.iterdir()] == ["attic.key"]


def test_a_token_that_was_changed_or_has_expired_is_refused(house: House, capsys: Capture) -> None:
    whole = house.token.read_text()
    other = JoinToken.read(house.token)
    try:
        house.token.unlink()
        house.issue()
        mixed = JoinToken.read(house.token)
        JoinToken(mixed.root, True, mixed.join_key, mixed.identity, other.authority).write(house.token)
        assert house.join() == DONE, "the same authority"
        for text, said in (
            (whole.replace("authority: |", "author: |"), "unknown key 'author'"),
            (whole.replace("version: 1", "version: 2"), "does not know such join tokens"),
            (re.sub(r"join_key: .*", "join_key: '?'", whole), "join_key is not base64"),
            (re.sub(r"(?s)key: \|.*?certificate", "key: |\n  none\ncertificate", whole, count=1), "PEM"),
            ("", "the file is empty"),
        ):
            house.token.write_text(text)
            assert house.join() == USAGE
            assert said in capsys.readouterr().err
        with pytest.raises(Exception, match="is not valid at"):
            other.check("kitchen.join", 5e9)
    finally:
        house.token.write_text(whole)


def test_a_token_that_everybody_can_read_is_named(house: House, capsys: Capture) -> None:
    house.token.chmod(0o644)
    try:
        assert house.join() == DONE
        assert f"chmod 600 {house.token}" in capsys.readouterr().err
    finally:
        house.token.chmod(0o600)
