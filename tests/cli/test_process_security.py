"""What nodes and gateways know of tokens: from flags, a topology, or a network on this host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hbroker.cli import main
from hbroker.cli.exits import USAGE
from hbroker.cli.flags import RunningNetwork, completed
from hbroker.config import GatewaySettings, NodeSettings, SecuritySettings
from hbroker.errors import ConfigError
from hbroker.runtime.launcher.run_directory import NetworkRun, NodeRun, RunDirectory
from hbroker.topology import Topology
from hbroker.topology.parse import parse

ROOT = ("192.0.2.1", 7700)
FILE = """
tokens: required
nodes:
  - {name: root, subtree: "", listen: "192.0.2.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "192.0.2.1:7701"}
"""
GATEWAY = GatewaySettings("gateway", ROOT, (), join_key=b"k" * 16)
NONE = SecuritySettings()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory, with the keys of FILE."""
    for name in ("HBROKER_AUTHORITY", "HBROKER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "house.yaml").write_text(FILE)
    assert main(["keys", "init", str(tmp_path / "house.yaml"), "--state-dir", str(tmp_path / "state")]) == 0
    return tmp_path / "state"


def network() -> Topology:
    return parse(FILE, file="house.yaml")


def kitchen() -> NodeSettings:
    node = network().node("kitchen")
    assert node is not None
    return replace(node, join_key=b"k" * 16)


@contextmanager
def running(state: Path, *, requires_tokens: bool = True) -> Iterator[None]:
    """The network of FILE, as commands find it."""
    directory = RunDirectory(state, "house")
    lock = directory.acquire()
    node = NodeRun("root", "", "192.0.2.1:7700", "up", 1, None, 0)
    authority = str(directory.authority / "authority.crt")
    token = str(directory.operator_token_file) if requires_tokens else None
    directory.write(NetworkRun("house", "house.yaml", 1, 0.0, (node,), authority=authority, token=token))
    try:
        yield
    finally:
        os.close(lock)


def test_with_a_topology_a_gateway_has_the_operators_token(state: Path) -> None:
    found = completed(GATEWAY, state, None, NONE, network()).security
    assert (found.token, found.requires_tokens) == (str(state / "house" / "operator.token"), False)
    found = completed(GATEWAY, state, None, SecuritySettings(token="own"), network()).security
    assert found.token == "own"
    (state / "house" / "operator.token").unlink()
    with pytest.raises(ConfigError, match="the network requires tokens; add --token FILE"):
        completed(GATEWAY, state, None, NONE, network())


def test_with_a_topology_a_node_requires_tokens_and_has_none(state: Path) -> None:
    found = completed(kitchen(), state, None, NONE, network()).security
    assert (found.requires_tokens, found.token, found.is_on) == (True, "", True)


@pytest.mark.parametrize("requires_tokens", [True, False])
def test_the_network_on_this_host_says_whether_tokens_are_required(
    state: Path, requires_tokens: bool
) -> None:
    file = str(state / "house" / "operator.token")
    with running(state, requires_tokens=requires_tokens):
        assert completed(kitchen(), state, None, NONE, None).security.requires_tokens is requires_tokens
        gateway = completed(GATEWAY, state, None, NONE, None).security
        assert gateway.token == (file if requires_tokens else "")
        found = RunningNetwork("192.0.2.1:7700", 1.0, None, state).token()
        assert found == (file if requires_tokens else None)


def test_a_gateway_elsewhere_has_the_token_of_its_flag(state: Path, tmp_path: Path) -> None:
    given = SecuritySettings("authority.crt", token="own")
    assert completed(GATEWAY, tmp_path / "nothing", None, given, None).security == given


def test_a_node_elsewhere_requires_tokens_unless_its_flag_says_otherwise(state: Path, tmp_path: Path) -> None:
    identities = str(state / "house" / "identities")
    given = SecuritySettings("authority.crt", identities)
    for said, expected in [(None, True), (True, True), (False, False)]:
        found = completed(kitchen(), tmp_path / "nothing", None, given, None, said)
        assert found.security == replace(given, requires_tokens=expected)


def test_a_node_without_security_cannot_require_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--name",
        "root",
        "--subtree",
        "",
        "--listen",
        "127.0.0.1:0",
        "--state-dir",
        str(tmp_path / "no"),
    ]
    assert main(["node", *flags, "--tokens", "required"]) == USAGE
    assert "tokens are required and security is off; add --authority FILE" in capsys.readouterr().err
