"""The authority and the identities that `hbroker up` provides for a network with security."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hbroker.cli.network import up
from hbroker.config import SecuritySettings
from hbroker.errors import ConfigError
from hbroker.identity.authority import AUTHORITY_VALIDITY_S, NODE_VALIDITY_S, Authority
from hbroker.identity.node_identity import Identity
from hbroker.runtime.launcher.identities import provide
from hbroker.runtime.launcher.run_directory import RunDirectory
from hbroker.topology import Topology
from hbroker.topology.parse import parse

NOW = 1_800_000_000.0
FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, also: [home/cellar], listen: "127.0.0.1:7701"}
"""


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path, "house")


def network(text: str = FILE) -> Topology:
    return parse(text, file="house.yaml")


def identity(directory: RunDirectory, name: str = "kitchen") -> Identity:
    return Identity.load(directory.identities, name)


def narrow(directory: RunDirectory) -> None:
    """Gives a node the certificate that an operator issued for its subtree alone."""
    issued = Authority.load(directory.authority).issue("kitchen", ["home"], NOW, key=identity(directory).key)
    issued.save(directory.identities)


def test_each_node_has_a_certificate_for_all_subtrees(directory: RunDirectory) -> None:
    settings = provide(network(), directory, NOW)
    authority = Authority.load(directory.authority)
    assert settings == SecuritySettings(
        authority=str(directory.authority / "authority.crt"),
        identity=str(directory.identities),
        token=str(directory.operator_token_file),
        requires_tokens=True,
    )
    assert authority.network == "house"
    for name in ("root", "kitchen"):
        found = authority.verify(identity(directory, name).chain[0], NOW)
        assert (found.name, found.subtrees) == (name, ("",))


def test_what_is_there_stays(directory: RunDirectory) -> None:
    provide(network(), directory, NOW)
    authority, before = Authority.load(directory.authority), identity(directory)
    provide(network(), directory, NOW + NODE_VALIDITY_S / 2)
    assert Authority.load(directory.authority).certificate == authority.certificate
    assert identity(directory) == before


@pytest.mark.parametrize(
    "later", [NODE_VALIDITY_S * 0.7, NODE_VALIDITY_S * 2, 0], ids=["little time left", "expired", "narrow"]
)
def test_a_certificate_is_renewed_for_the_same_key(directory: RunDirectory, later: float) -> None:
    provide(network(), directory, NOW)
    if not later:
        narrow(directory)
    before = identity(directory)
    provide(network(), directory, NOW + later)
    after = identity(directory)
    assert (after.key, after.chain != before.chain) == (before.key, True)
    assert after.certificate.subtrees == ("",)


def test_identities_of_another_authority_are_issued_again(directory: RunDirectory) -> None:
    provide(network(), directory, NOW)
    for file in directory.authority.iterdir():
        file.unlink()
    provide(network(), directory, NOW)
    authority = Authority.load(directory.authority)
    assert authority.verify(identity(directory).chain[0], NOW).name == "kitchen"


def test_a_damaged_key_is_reported_and_kept(directory: RunDirectory) -> None:
    provide(network(), directory, NOW)
    key = directory.authority / "authority.key"
    key.write_text("no key")
    with pytest.raises(ConfigError, match=r"authority\.key"):
        provide(network(), directory, NOW)
    assert key.read_text() == "no key"


def test_the_key_of_the_authority_may_be_elsewhere(directory: RunDirectory) -> None:
    settings = provide(network(), directory, NOW)
    key = directory.authority / "authority.key"
    key.rename(directory.path / "elsewhere")
    files = {file: file.read_bytes() for file in directory.path.rglob("*") if file.is_file()}
    assert provide(network(), directory, NOW + NODE_VALIDITY_S * 0.9) == settings
    assert {file: file.read_bytes() for file in directory.path.rglob("*") if file.is_file()} == files


@pytest.mark.parametrize(
    ("later", "change"),
    [
        (NODE_VALIDITY_S * 2, lambda directory: None),
        (0, narrow),
        (0, lambda directory: shutil.rmtree(directory.identities)),
    ],
    ids=["expired", "narrow", "no identities"],
)
def test_without_its_key_no_other_authority_is_made(
    directory: RunDirectory, later: float, change: Callable[[RunDirectory], None]
) -> None:
    provide(network(), directory, NOW)
    change(directory)
    certificate = (directory.authority / "authority.crt").read_bytes()
    (directory.authority / "authority.key").unlink()
    with pytest.raises(
        ConfigError, match="needs a new certificate, and the key of the authority is not here"
    ):
        provide(network(), directory, NOW + later)
    assert (directory.authority / "authority.crt").read_bytes() == certificate


def test_an_authority_that_has_expired_does_not_end_a_network_that_runs(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    provide(network(), directory, NOW)
    with monkeypatch.context() as patch:
        patch.setattr("time.time", lambda: NOW + 2 * AUTHORITY_VALIDITY_S)
        up._renew_certificates(network(), directory)
    assert "no certificate was renewed: the certificate of the node root" in capsys.readouterr().err
