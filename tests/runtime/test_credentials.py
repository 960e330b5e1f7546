"""What clients, nodes and gateways seal their datagrams with, and the tokens of clients, read from files."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from hbroker._native import Credentials
from hbroker.config import SecuritySettings
from hbroker.errors import ConfigError
from hbroker.identity.authority import Authority
from hbroker.runtime import credentials
from hbroker.runtime.credentials import (
    authority_at,
    client_security,
    credentials_at,
    credentials_of,
    token_at,
)
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
    monkeypatch.delenv("HBROKER_TOKEN", raising=False)
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


def text_of(token: bytes) -> str:
    return base64.urlsafe_b64encode(token).decode()


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The tokens of the credentials that were made, in order."""
    tokens: list[bytes | None] = []
    native: Any = Credentials

    def made(*arguments: Any, token: bytes | None = None, **others: Any) -> Any:
        tokens.append(token)
        return native(*arguments, token=token, **others)

    monkeypatch.setattr(credentials, "Credentials", made)
    return tokens


@pytest.mark.parametrize("around", ["{}", "{}\n", " \t{}\r\n\n"])
def test_a_client_has_the_token_in_its_file(
    file: Path, tmp_path: Path, shown: list[bytes | None], around: str
) -> None:
    token = bytes(range(256)) * 16
    (tmp_path / "token").write_text(around.format(text_of(token)))
    assert credentials_of(SecuritySettings(str(file), token=str(tmp_path / "token")))
    assert credentials_of(SecuritySettings(str(file)))
    assert credentials_of(SecuritySettings(str(file), str(tmp_path), str(tmp_path / "no")), "kitchen")
    assert shown == [token, None, None], "a node has none"
    assert credentials_of(SecuritySettings(token=str(tmp_path / "no"))) is None, "security is off"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty"),
        (" \n", "the file is empty"),
        ("not a token", "it is not base64 for URLs, in one line"),
        ("a+/=", "it is not base64 for URLs, in one line"),
        ("YWJj\nZGVm", "it is not base64 for URLs, in one line"),
        ("YWI", "it is not base64 for URLs, in one line"),
        ("YWJ=", "it is not base64 for URLs, in one line"),
        ("\u00e9", "it is not base64 for URLs, in one line"),
        (text_of(bytes(4_097)), "it has over 4096 bytes"),
        (text_of(bytes(100_000)), "it has over 4096 bytes"),
    ],
)
def test_a_file_that_is_no_token_is_named(file: Path, tmp_path: Path, text: str, why: str) -> None:
    wrong = tmp_path / "wrong.token"
    wrong.write_text(text)
    with pytest.raises(ConfigError) as raised:
        credentials_at(ROOT, file, wrong)
    assert (raised.value.file, raised.value.message) == (str(wrong), f"not a token: {why}")
    assert "hbroker token create" in str(raised.value)


def test_a_token_that_cannot_be_read_is_an_error(file: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        credentials_at(ROOT, file, tmp_path / "no.token")
    with pytest.raises(IsADirectoryError):
        credentials_at(ROOT, file, tmp_path)


def test_the_token_of_the_caller_is_before_that_of_the_environment_and_of_the_network_on_this_host(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDirectory(Path(".hbroker"), "house")
    lock = directory.acquire()
    node = NodeRun("root", "", "192.0.2.1:7700", "up", 1, None, 0)
    run = NetworkRun("house", "house.yaml", 1, 0.0, (node,), authority=str(file), token="operator")
    directory.write(run)
    assert token_at(Path(".hbroker"), ROOT) == "operator"
    assert token_at(Path(".hbroker"), ("192.0.2.1", 7701)) == ""
    assert token_at(Path("nothing"), ROOT) == ""
    assert client_security(ROOT) == SecuritySettings(str(file), token="operator")
    monkeypatch.setenv("HBROKER_TOKEN", "environment")
    assert client_security(ROOT) == SecuritySettings(str(file), token="environment")
    assert client_security(ROOT, None, "caller") == SecuritySettings(str(file), token="caller")
    monkeypatch.delenv("HBROKER_TOKEN")
    os.close(lock)
    assert client_security(ROOT, file) == SecuritySettings(str(file)), "it runs no more"
    assert client_security(ROOT, None, "caller") == SecuritySettings(), "no authority, so no token"
