"""The file of one node, and flags beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbroker.cli import main
from hbroker.cli.exits import USAGE
from hbroker.config import Durability, LeasePolicy
from hbroker.errors import ConfigErrors
from hbroker.topology.node_file import load_node

WHOLE = """
name: kitchen
subtree: home/kitchen
also: [home/attic]
listen: 0.0.0.0:7701
advertise: 192.0.2.7
root: 192.0.2.1:7700
workers: 2
policy: serve
durability: os
join_key_file: join.key
authority: authority.crt
identity: .
tokens: required
memory: state/node
telemetry: /var/log/hbroker
log_format: json
log_level: debug
sessions: 100
workspaces:
  acme: {sessions: 10}
"""
LEAST = 'name: root\nsubtree: ""\nlisten: 127.0.0.1:7700\n'


def written(folder: Path, text: str) -> Path:
    (folder / "join.key").write_text("0123456789abcdef")
    file = folder / "node.yaml"
    file.write_text(text)
    return file


def test_a_file_has_all_that_flags_have(tmp_path: Path) -> None:
    found = load_node(written(tmp_path, WHOLE), {})
    settings = found.settings
    assert (settings.name, settings.subtrees) == ("kitchen", ("home/kitchen", "home/attic"))
    assert (settings.listen, settings.address) == (("0.0.0.0", 7701), ("192.0.2.7", 7701))
    assert (settings.root, settings.workers) == (("192.0.2.1", 7700), 2)
    assert (settings.policy, settings.durability) == (LeasePolicy.SERVE, Durability.OS)
    assert (settings.join_key, settings.limits.sessions) == (b"0123456789abcdef", 100)
    assert settings.security.authority == str(tmp_path / "authority.crt")
    assert settings.security.identity == str(tmp_path)
    assert settings.telemetry.directory == "/var/log/hbroker"
    assert [(each.name, each.sessions) for each in settings.workspaces] == [("acme", 10)]
    assert (found.memory, found.requires_tokens) == (tmp_path / "state" / "node", True)
    assert (found.log_format, found.log_level) == ("json", "debug")


def test_the_least_file_is_a_root_without_security(tmp_path: Path) -> None:
    found = load_node(written(tmp_path, LEAST), {})
    assert (found.settings.is_root, found.settings.security.is_on) == (True, False)
    assert (found.memory, found.requires_tokens, found.log_level) == (None, None, "")


def test_a_flag_replaces_a_key(tmp_path: Path) -> None:
    flags = {"advertise": "192.0.2.9:7709", "sessions": "7", "workers": None, "memory": "/elsewhere"}
    found = load_node(written(tmp_path, WHOLE), flags, also=["home/cellar"], workspaces=["beta,sessions=1"])
    assert found.settings.address == ("192.0.2.9", 7709)
    assert (found.settings.limits.sessions, found.settings.workers) == (7, 2)
    assert (found.settings.also, found.memory) == (("home/cellar",), Path("/elsewhere"))
    assert [each.name for each in found.settings.workspaces] == ["beta"]


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (
            f"{LEAST}wokers: 2\n",
            ["node.yaml:4: the file has an unknown key 'wokers'; did you mean `workers`?"],
        ),
        (f"{LEAST}join_key: 0123456789abcdef\n", ["node.yaml:4: the file has an unknown key 'join_key'"]),
        (f"{LEAST}name: again\n", ["node.yaml:4: the file has the key 'name' twice"]),
        (f"{LEAST}root: 192.0.2.1:7700\n", ["node.yaml: the root of a network joins nobody"]),
        (
            f"{LEAST}tokens: maybe\nlog_level: loud\n",
            ["node.yaml:4: tokens is 'maybe'", "node.yaml:5: 'loud'"],
        ),
        (f"{LEAST}memory:\n", ["node.yaml:4: memory has no value"]),
        ("name: kitchen\nsubtree: home\nlisten: 127.0.0.1:0\n", ["no root to join for the subtree 'home'"]),
        ("name: kitchen\n", ["has no `subtree`", "has no `listen`"]),
        ("nodes: []\n", ["this is a topology file; add --name NAME"]),
        ("- kitchen\n", ["the file holds a list, not a mapping"]),
        ("", ["the file is empty"]),
    ],
)
def test_each_error_has_its_line(tmp_path: Path, text: str, errors: list[str]) -> None:
    with pytest.raises(ConfigErrors) as raised:
        load_node(written(tmp_path, text), {})
    for error in errors:
        assert error in str(raised.value)


def test_a_wrong_flag_is_no_error_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as raised:
        load_node(written(tmp_path, LEAST), {"workers": "many"})
    assert str(raised.value).startswith("command line: workers is 'many'")


def test_without_flags_the_file_is_in_etc(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = written(tmp_path, f"{LEAST}wokers: 2\n")
    monkeypatch.setattr("hbroker.cli.network.node._DEFAULT_FILE", str(file))
    assert main(["node", "--log-level", "debug"]) == USAGE
    assert "unknown key 'wokers'" in capsys.readouterr().err
    assert main(["node", "--listen", "127.0.0.1:0"]) == USAGE
    assert "the node has no name" in capsys.readouterr().err
