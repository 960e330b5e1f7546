"""The launcher and real processes: whatever is killed, what should run runs and what should not does not."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from hbroker.runtime.state import NetworkRun, RunDirectory, running

PROJECT = Path(__file__).parent.parent.parent
PATIENCE = 20.0
"""Seconds: far more than anything here takes on a machine with nothing else to do."""

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
  - {name: bedroom, subtree: home/bedroom, listen: "127.0.0.1:7702"}
"""


class Launched:
    """A launcher with stand-ins for nodes, and the events that it prints."""

    def __init__(self, directory: Path, behaviour: str) -> None:
        file = directory / "house.yaml"
        file.write_text(FILE)
        self.base = directory / "state"
        self.directory = RunDirectory(self.base, "house")
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("stand_in.py")),
                str(file),
                str(self.base),
                behaviour,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def event(self, name: str) -> dict[str, Any]:
        """The next event of that name; others before it are passed over."""
        deadline = time.monotonic() + PATIENCE
        while True:
            event: dict[str, Any] = json.loads(self._lines.get(timeout=max(deadline - time.monotonic(), 0)))
            if event["event"] == name:
                return event

    def state(self) -> NetworkRun:
        """What `hbroker status` reads."""
        run = self.directory.read()
        assert run is not None
        return run

    def pid(self, name: str) -> int:
        """The process of a node."""
        pid = next(node.pid for node in self.state().nodes if node.name == name)
        assert pid is not None
        return pid

    def pids(self) -> list[int]:
        """The processes of all nodes."""
        return [node.pid for node in self.state().nodes if node.pid is not None]

    def close(self) -> None:
        """Leaves nothing behind, however the test ended."""
        pids = self.pids() if self.directory.read() else []
        for pid in [self.process.pid, *pids]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)


Launch = Callable[[str], Launched]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launched = []

    def start(behaviour: str) -> Launched:
        launched.append(Launched(tmp_path, behaviour))
        return launched[-1]

    yield start
    for launcher in launched:
        launcher.close()


def await_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE
    processes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    _, alive = psutil.wait_procs(processes, timeout=deadline - time.monotonic())
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_ready_comes_once_every_node_is(launch: Launch) -> None:
    launched = launch("well")
    ready = launched.event("ready")
    assert ready["root"] == "127.0.0.1:7700"
    assert [node["name"] for node in ready["nodes"]] == ["root", "bedroom", "kitchen"]
    pids = launched.pids()
    assert len(set(pids)) == 3
    assert launched.process.pid not in pids
    assert all(psutil.Process(pid).ppid() == launched.process.pid for pid in pids)
    assert [directory.network for directory in running(launched.base)] == ["house"]
    assert launched.directory.launcher() == launched.process.pid


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_in_time(launch: Launch, number: signal.Signals) -> None:
    launched = launch("well")
    launched.event("ready")
    pids = launched.pids()
    launched.process.send_signal(number)
    assert launched.event("stopped")["seconds"] < 3.0
    assert launched.process.wait(PATIENCE) == 0
    await_gone(pids)
    assert launched.directory.launcher() is None
    assert {node.state for node in launched.state().nodes} == {"down"}
    assert launched.pids() == []


def test_what_ignores_the_request_is_killed(launch: Launch) -> None:
    launched = launch("stubborn")
    launched.event("ready")
    pids = launched.pids()
    launched.process.send_signal(signal.SIGINT)
    assert 1.9 < launched.event("stopped")["seconds"] < 3.0
    await_gone(pids)


def test_a_second_ctrl_c_does_not_wait(launch: Launch) -> None:
    launched = launch("stubborn")
    launched.event("ready")
    launched.process.send_signal(signal.SIGINT)
    launched.process.send_signal(signal.SIGTERM)
    assert launched.event("stopped")["seconds"] < 1.9


def test_a_killed_node_is_back(launch: Launch) -> None:
    launched = launch("well")
    launched.event("ready")
    before = launched.pid("kitchen")
    others = launched.pid("root"), launched.pid("bedroom")
    os.kill(before, signal.SIGKILL)
    ended = launched.event("ended")
    assert (ended["node"], ended["how"]) == ("kitchen", "SIGKILL")
    back = launched.event("back")
    assert back["node"] == "kitchen"
    assert back["seconds"] < 5.0
    launched.process.send_signal(signal.SIGTERM)
    launched.event("stopped")
    kitchen = next(node for node in launched.state().nodes if node.name == "kitchen")
    assert kitchen.restarts == 1
    await_gone([before, *others])


def test_nodes_die_with_a_launcher_that_is_killed(launch: Launch) -> None:
    launched = launch("stubborn")
    launched.event("ready")
    pids = launched.pids()
    assert len(pids) == 3
    launched.process.kill()
    await_gone(pids)
    assert launched.directory.launcher() is None
    assert running(launched.base) == []


def test_a_node_that_fails_says_why_and_is_tried_again(launch: Launch) -> None:
    launched = launch("failing")
    for _ in range(6):
        ended = launched.event("ended")
        assert ended["how"] == "exit code 1"
        assert ended["last_line"] == f"OSError: {ended['node']} has no luck"
    assert ended["restart_in_s"] > 0.25
    launched.process.send_signal(signal.SIGINT)
    launched.event("stopped")


def test_a_node_has_nothing_of_its_launcher(launch: Launch) -> None:
    launched = launch("inspecting")
    launched.event("ready")
    for name in ("root", "kitchen", "bedroom"):
        lines = launched.directory.log_file(name).read_text().splitlines()
        assert lines == ["descriptors [0, 1, 2, 3] leader True", f"hello from {name}"]


def test_ctrl_c_in_the_terminal_reaches_the_launcher_alone(launch: Launch) -> None:
    launched = launch("well")
    launched.event("ready")
    assert all(os.getpgid(pid) == pid for pid in launched.pids())


def test_the_same_network_does_not_start_twice(launch: Launch) -> None:
    launched = launch("well")
    launched.event("ready")
    second = launch("well")
    assert second.process.wait(PATIENCE) == 1
    assert second.process.stderr is not None
    assert "the network 'house' runs already" in second.process.stderr.read()
    assert launched.directory.launcher() == launched.process.pid
