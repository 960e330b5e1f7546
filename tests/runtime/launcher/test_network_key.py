"""The join key that `hbroker up` makes for a network whose topology has none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hbroker.errors import ConfigErrors
from hbroker.runtime.launcher.network_key import key_at, own_key
from hbroker.runtime.launcher.run_directory import NetworkRun, NodeRun, RunDirectory

ROOT = ("192.0.2.1", 7700)
NODES = 'nodes: [{name: root, subtree: "", listen: "192.0.2.1:7700"}]\n'


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "state", "house")


def running(directory: RunDirectory, topology: Path) -> int:
    """Writes the files of a running launcher. Returns its lock."""
    lock = directory.acquire()
    node = NodeRun("root", "", "192.0.2.1:7700", "up", 1, None, 0)
    directory.write(NetworkRun("house", str(topology), 1, 0.0, (node,)))
    return lock


def test_each_network_has_one_key_that_only_its_user_can_read(directory: RunDirectory) -> None:
    key = own_key(directory)
    assert len(key) == 64
    assert own_key(directory) == key
    assert own_key(RunDirectory(directory.path.parent, "other")) != key
    assert directory.join_key_file.stat().st_mode & 0o777 == 0o600
    assert directory.path.stat().st_mode & 0o777 == 0o700


def test_the_permissions_of_an_existing_state_folder_are_restricted(directory: RunDirectory) -> None:
    directory.path.mkdir(parents=True)
    directory.path.chmod(0o755)
    os.close(directory.acquire())
    assert directory.path.stat().st_mode & 0o777 == 0o700


def test_a_key_file_without_a_valid_key_is_an_error(directory: RunDirectory) -> None:
    directory.path.mkdir(parents=True)
    directory.join_key_file.write_text("short\n")
    with pytest.raises(ConfigErrors, match="the join key has 5 bytes"):
        own_key(directory)


def test_the_key_is_found_by_the_address_of_the_root(directory: RunDirectory, tmp_path: Path) -> None:
    file = tmp_path / "house.yaml"
    file.write_text(NODES)
    key = own_key(directory)
    base = directory.path.parent
    assert key_at(base, ROOT) == b"", "it does not run"
    lock = running(directory, file)
    try:
        assert key_at(base, ROOT) == key_at(base, ("127.0.0.1", 7700)) == key
        assert key_at(base, ("192.0.2.1", 7701)) == key_at(base, ("192.0.2.2", 7700)) == b""
        assert key_at(tmp_path / "elsewhere", ROOT) == b""
    finally:
        os.close(lock)


def test_the_topologys_key_has_precedence_over_the_generated_one(
    directory: RunDirectory, tmp_path: Path
) -> None:
    file = tmp_path / "house.yaml"
    file.write_text(f"{NODES}auth: {{join_key: 0123456789abcdef}}\n")
    own_key(directory)
    lock = running(directory, file)
    try:
        assert key_at(directory.path.parent, ROOT) == b"0123456789abcdef"
    finally:
        os.close(lock)
