"""A client notices that the file with the authority's certificate, or that with its token, was replaced."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hbroker.config import SecuritySettings
from hbroker.identity.authority import Authority
from hbroker.identity.pem_files import write_certificates
from hbroker.runtime import credentials
from hbroker.runtime.credentials import CredentialFiles

SECOND = 1_000_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    Authority.create("house", time.time()).save(tmp_path)
    return tmp_path / "authority.crt"


def replace(file: Path) -> None:
    write_certificates(file, [Authority.create("house", time.time()).parsed])


def test_a_replaced_file_is_read_once(file: Path) -> None:
    watched = CredentialFiles(SecuritySettings(str(file)))
    assert watched.read() is not None
    assert watched.credentials_if_changed(0) is None
    replace(file)
    assert watched.credentials_if_changed(4 * SECOND) is None
    assert watched.credentials_if_changed(5 * SECOND) is not None
    assert watched.credentials_if_changed(10 * SECOND) is None


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_that_is_being_written_is_read_later(file: Path, content: str | None) -> None:
    watched = CredentialFiles(SecuritySettings(str(file)))
    watched.read()
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    assert watched.credentials_if_changed(0) is None
    replace(file)
    assert watched.credentials_if_changed(5 * SECOND) is not None


def test_a_change_while_the_file_is_read_is_noticed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched, read = CredentialFiles(SecuritySettings(str(file))), credentials.credentials_of

    def replaced_then(security: SecuritySettings) -> object:
        found = read(security)
        replace(file)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(credentials, "credentials_of", replaced_then)
        watched.read()
    assert watched.credentials_if_changed(0) is not None


def test_the_file_is_the_same_in_another_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    watched = CredentialFiles(SecuritySettings(file.name))
    watched.read()
    monkeypatch.chdir("/")
    replace(file)
    assert watched.credentials_if_changed(0) is not None


@pytest.fixture
def token(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("YWJj\n")
    return tmp_path / "token"


def test_a_replaced_token_is_read_once(file: Path, token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(token.parent)
    watched = CredentialFiles(SecuritySettings(str(file), token=token.name))
    monkeypatch.chdir("/")
    assert watched.read() is not None
    assert watched.credentials_if_changed(0) is None
    token.write_text("YWJjZGVm\n")
    assert watched.credentials_if_changed(4 * SECOND) is None
    assert watched.credentials_if_changed(5 * SECOND) is not None
    assert watched.credentials_if_changed(10 * SECOND) is None
    replace(file)
    assert watched.credentials_if_changed(15 * SECOND) is not None


@pytest.mark.parametrize("content", [None, "", "no token"])
def test_a_token_that_is_being_written_is_read_later(file: Path, token: Path, content: str | None) -> None:
    watched = CredentialFiles(SecuritySettings(str(file), token=str(token)))
    watched.read()
    if content is None:
        token.unlink()
    else:
        token.write_text(content)
    assert watched.credentials_if_changed(0) is None
    token.write_text("YWJjZGVm\n")
    assert watched.credentials_if_changed(5 * SECOND) is not None
