"""The state that a launcher writes for other commands, and the ports that it chooses."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hbroker import topology
from hbroker.runtime.launcher import ports
from hbroker.runtime.launcher.run_directory import (
    LOG_BYTES,
    AlreadyRunning,
    NetworkRun,
    NodeRun,
    RunDirectory,
)

PROJECT = Path(__file__).parents[3]
RUN = NetworkRun(
    name="house",
    topology="/somewhere/house.yaml",
    pid=7,
    started_at=1.5,
    nodes=(
        NodeRun("root", "", "127.0.0.1:7700", "up", 8, 2.5, 1),
        NodeRun("k", "k", "[::1]:1", "down", None, None, 0),
    ),
)


def test_the_written_state_is_read_back(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "house")
    os.close(directory.acquire())
    directory.write(RUN)
    assert directory.read() == RUN
    assert not RUN.is_up


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"nodes": [{}]}', '{"nodes": [], "colour": 1}'])
def test_an_invalid_state_file_is_ignored(tmp_path: Path, content: str) -> None:
    directory = RunDirectory(tmp_path, "house")
    assert directory.read() is None
    directory.path.mkdir()
    directory.state_file.write_text(content)
    assert directory.read() is None


def test_one_launcher_holds_the_lock_until_it_closes_it(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "house")
    assert directory.launcher() is None
    lock = directory.acquire()
    assert directory.launcher() == os.getpid()
    with pytest.raises(AlreadyRunning):
        RunDirectory(tmp_path, "house").acquire()
    assert not directory.await_end(0.0)
    os.close(lock)
    assert directory.launcher() is None
    assert directory.await_end(0.0)


def test_a_large_log_is_rotated(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "house")
    os.close(directory.acquire())
    directory.log_file("root").write_bytes(b"x" * LOG_BYTES + b"\nlast\n\n")
    assert directory.last_line("root") == "last"
    os.close(directory.open_log("root"))
    assert directory.log_file("root").read_bytes() == b""
    assert (directory.path / "root.log.1").stat().st_size > LOG_BYTES
    assert directory.last_line("root") == ""
    assert directory.last_line("nobody") == ""


def test_any_port_gives_every_node_a_port_of_its_own() -> None:
    campus = topology.load(PROJECT / "topologies" / "campus.yaml")
    moved = ports.assign(campus, any_port=True)
    found = [node.listen[1] for node in moved.nodes]
    assert len(set(found)) == 40
    assert 0 not in found
    assert {node.root for node in moved.nodes[1:]} == {moved.root.listen}


def test_a_port_in_use_is_reported_even_if_its_user_would_share_it() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        address = taken.getsockname()
        with pytest.raises(ports.PortTaken, match="is in use by another process"):
            ports.require_free(address)
    ports.require_free(address)


def test_an_address_that_the_host_does_not_have_is_reported() -> None:
    with pytest.raises(ports.PortTaken, match="cannot listen on"):
        ports.require_free(("192.0.2.1", 0))
