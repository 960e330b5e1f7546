"""What clients, nodes and gateways seal their datagrams with, read from files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hbroker.config import SecuritySettings
from hbroker.errors import ConfigError
from hbroker.identity.authority import Authority
from hbroker.runtime import credentials
from hbroker.runtime.credentials import authority_at, credentials_at, credentials_of
from hbroker.runtime.launcher.run_directory import NetworkRun, NodeRun, RunDirectory

NOW = 1_800_000_000.0
ROOT = ("192.0.2.1", 7700)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority.create("house", NOW)
    made.save(tmp_path / "authority")
    made.issue("kitchen", ["home/kitchen"], NOW).save(tmp_path)
    return made


@pytest.fixture
def file(authority: Authority, tmp_path: Path) -> Path:
    assert authority.network == "house"
    return tmp_path / "authority" / "authority.crt"


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HBROKER_AUTHORITY", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def test_there_are_none_without_an_authority() -> None:
    assert credentials_of(SecuritySettings()) is None
    assert credentials_at(ROOT) is None


def test_a_node_has_an_identity_and_a_client_has_none(file: Path, tmp_path: Path) -> None:
    assert credentials_of(SecuritySettings(str(file)))
    assert credentials_of(SecuritySettings(str(file), str(tmp_path)), "kitchen")
    with pytest.raises(FileNotFoundError):
        credentials_of(SecuritySettings(str(file), str(tmp_path)), "cellar")


def test_a_file_may_have_several_authorities(file: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.crt"
    both.write_text(f"# two\n{file.read_text()}\nanother\n{file.read_text()}")
    assert len(credentials._certificates(both)) == 2
    assert credentials_at(ROOT, both)


@pytest.mark.parametrize(
    "text", ["", "no certificate", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"]
)
def test_a_file_that_is_no_certificate_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.crt"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"wrong\.crt: not a certificate of an authority"):
        credentials_at(ROOT, file)


def test_a_client_takes_what_the_caller_names_then_the_environment_then_the_network_on_this_host(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(Path(".hbroker"), "house")
    lock = directory.acquire()
    node = NodeRun("root", "", "192.0.2.1:7700", "up", 1, None, 0)
    directory.write(NetworkRun("house", "house.yaml", 1, 0.0, (node,), authority=str(file)))
    assert authority_at(Path(".hbroker"), ROOT) == str(file)
    assert authority_at(Path(".hbroker"), ("127.0.0.1", 7700)) == str(file)
    assert authority_at(Path(".hbroker"), ("192.0.2.1", 7701)) == ""
    assert authority_at(Path("nothing"), ROOT) == ""
    assert credentials_at(ROOT)
    monkeypatch.setenv("HBROKER_AUTHORITY", str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        credentials_at(ROOT)
    assert credentials_at(ROOT, file)
    monkeypatch.delenv("HBROKER_AUTHORITY")
    os.close(lock)
    assert credentials_at(ROOT) is None, "it runs no more"
