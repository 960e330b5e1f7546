"""A client notices that the file with the authority's certificate was replaced."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hbroker.identity.authority import Authority
from hbroker.identity.pem_files import write_certificates
from hbroker.runtime.credentials import AuthorityFile

SECOND = 1_000_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    Authority.create("house", time.time()).save(tmp_path)
    return tmp_path / "authority.crt"


def replace(file: Path) -> None:
    write_certificates(file, [Authority.create("house", time.time()).parsed])


def test_a_replaced_file_is_read_once(file: Path) -> None:
    watched = AuthorityFile(str(file))
    assert watched.credentials_if_changed(0) is None
    replace(file)
    assert watched.credentials_if_changed(4 * SECOND) is None
    assert watched.credentials_if_changed(5 * SECOND) is not None
    assert watched.credentials_if_changed(10 * SECOND) is None


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_that_is_being_written_is_read_later(file: Path, content: str | None) -> None:
    watched = AuthorityFile(str(file))
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    assert watched.credentials_if_changed(0) is None
    replace(file)
    assert watched.credentials_if_changed(5 * SECOND) is not None
