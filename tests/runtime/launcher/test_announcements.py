"""Networks are found by the address of their root, wherever `hbroker up` was run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hbroker.runtime.credentials import authority_at, token_at
from hbroker.runtime.launcher.run_directory import NetworkRun, NodeRun, RunDirectory, running_at

ROOT = ("192.0.2.1", 7700)
NOWHERE = Path("nowhere")


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))


@contextmanager
def running(base: Path, name: str, port: int = ROOT[1]) -> Iterator[RunDirectory]:
    directory = RunDirectory(base, name)
    lock = directory.acquire()
    node = NodeRun("root", "", f"{ROOT[0]}:{port}", "up", 1, None, 0)
    directory.write(
        NetworkRun(name, "x.yaml", os.getpid(), 0.0, (node,), authority=f"{name}.crt", token=f"{name}.token")
    )
    directory.announce((ROOT[0], port))
    try:
        yield directory
    finally:
        directory.withdraw()
        os.close(lock)


def found(root: tuple[str, int] = ROOT) -> list[str]:
    return [run.name for _, run in running_at(NOWHERE, root)]


def test_a_network_is_found_while_it_runs(tmp_path: Path) -> None:
    with running(tmp_path / "a", "house"), running(tmp_path / "b", "barn", 7710):
        assert (found(), found((ROOT[0], 7710)), found((ROOT[0], 7720))) == (["house"], ["barn"], [])
        assert found(("127.0.0.1", 7700)) == ["house"]
        assert authority_at(NOWHERE, ROOT) == "house.crt"
        assert token_at(NOWHERE, ROOT) == "house.token"
    assert found() == []
    assert authority_at(NOWHERE, ROOT) == ""
    assert token_at(NOWHERE, ROOT) == ""


def test_a_launcher_that_was_killed_is_forgotten(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path / "a", "house")
    lock = directory.acquire()
    directory.announce(ROOT)
    os.close(lock)
    assert found() == []
    with running(tmp_path / "b", "barn"):
        assert found() == ["barn"], "at the same address"


def test_a_host_where_nothing_can_be_announced_runs_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with running(tmp_path / "a", "house"):
        assert found() == []
        assert [run.name for _, run in running_at(tmp_path / "a", ROOT)] == ["house"]
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    with running(tmp_path / "a", "house"):
        assert found() == []
