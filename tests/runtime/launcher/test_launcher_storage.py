"""A launcher whose disk refuses writes, or that has no descriptors left: its processes go on, and it
reports the fault."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hbroker.cli import main
from hbroker.cli.exits import DONE, FAILED
from tests.runtime.launcher.launched import PATIENCE, Launch, Launched, launch
from tests.waiting import until

__all__ = ["launch"]

SMALL_DISK = 'mkdir -p "$0" && mount -t tmpfs -o size=1m none "$0" && exec "$@"'


def status(launched: Launched) -> int:
    return main(["status", "house", "--state-dir", str(launched.base)])


def test_a_state_file_that_cannot_be_written_ends_no_process(
    launch: Launch, capsys: pytest.CaptureFixture[str]
) -> None:
    launched = launch("well")
    launched.event("ready")
    before = launched.pid("root"), launched.pid("bedroom")
    minor_fault = launched.directory.path / "state.json.new"
    minor_fault.mkdir()
    os.kill(launched.pid("kitchen"), signal.SIGKILL)
    assert launched.event("storage_failed")["process"] == "house"
    assert launched.event("back")["node"] == "kitchen"
    assert status(launched) == FAILED
    assert "storage: house: Is a directory" in capsys.readouterr().out
    minor_fault.rmdir()
    assert launched.event("storage_recovered")["process"] == "house"
    assert (launched.pid("root"), launched.pid("bedroom")) == before
    assert [node.restarts for node in launched.state().nodes if node.name == "kitchen"] == [1]
    assert status(launched) == DONE


def test_a_node_is_started_even_if_its_log_cannot_be_opened(launch: Launch) -> None:
    launched = launch("well")
    launched.event("ready")
    launched.directory.log_file("kitchen").unlink()
    launched.directory.log_file("kitchen").mkdir()
    os.kill(launched.pid("kitchen"), signal.SIGKILL)
    assert launched.event("storage_failed")["process"] == "kitchen.log"
    assert launched.event("back")["node"] == "kitchen"
    assert "stderr" in launched.directory.faults()["kitchen.log"]


def test_a_node_that_lacks_descriptors_is_started_once_there_are_some(launch: Launch) -> None:
    launched = launch("well")
    launched.event("ready")
    launcher = psutil.Process(launched.process.pid)
    limit = launcher.rlimit(resource.RLIMIT_NOFILE)
    launcher.rlimit(resource.RLIMIT_NOFILE, (3, limit[1]))
    os.kill(launched.pid("kitchen"), signal.SIGKILL)
    assert launched.event("ended")["how"] == "SIGKILL"
    assert launched.event("ended")["how"] == "it could not be started: Too many open files"
    launcher.rlimit(resource.RLIMIT_NOFILE, limit)
    assert launched.event("back")["node"] == "kitchen"
    until(lambda: launched.directory.faults() == {}, "the disk takes everything again", PATIENCE)
    assert launched.state().is_up


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while file.write(b"x" * 512):
            pass


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Launched]:
    """A launcher whose folder is on a disk of 1 MiB that only it sees."""
    state = str(tmp_path / "state")
    probe = subprocess.run(["unshare", "-m", "sh", "-c", SMALL_DISK, state, "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("a disk can be mounted by root alone")
    launched = Launched(tmp_path, "well", "unshare", "-m", "sh", "-c", SMALL_DISK, state)
    launched.directory.path = Path(f"/proc/{launched.process.pid}/root{state}/house")
    yield launched
    launched.close()


def test_a_full_disk_ends_no_process(small: Launched) -> None:
    small.event("ready")
    before = small.pid("root"), small.pid("bedroom")
    filler = small.directory.path / "filler"
    with pytest.raises(OSError, match="No space left"):
        fill(filler)
    os.kill(small.pid("kitchen"), signal.SIGKILL)
    assert small.event("storage_failed")["error"].startswith("No space left on device")
    assert small.event("back")["node"] == "kitchen"
    assert small.directory.launcher() == small.process.pid
    assert "No space left" in small.directory.faults()["house"]
    filler.unlink()
    assert small.event("storage_recovered")["process"] == "house"
    assert (small.pid("root"), small.pid("bedroom")) == before
    assert small.state().is_up
    assert small.directory.faults() == {}
