"""A launcher in a process of its own, with stand-ins for nodes. For tests of how the launcher treats
processes."""

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

from hbroker.runtime.launcher.run_directory import GatewayRun, NetworkRun, NodeRun, RunDirectory

PROJECT = Path(__file__).parents[3]
PATIENCE = 60.0
"""Seconds: far more than anything here takes, even on a busy machine."""

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
  - {name: bedroom, subtree: home/bedroom, listen: "127.0.0.1:7702"}
"""

GATEWAYS = """
gateways:
  - {name: gate, listeners: [{address: "127.0.0.1:0"}, {address: "[::1]:0", websocket: /mqtt}]}
"""


class Launched:
    """A launcher with stand-ins for nodes, and the events that it prints. `before`: the command that runs
    it."""

    def __init__(self, directory: Path, behaviour: str, *before: str) -> None:
        file = directory / "house.yaml"
        file.write_text(FILE + GATEWAYS if behaviour == "gateways" else FILE)
        self.base = directory / "state"
        self.directory = RunDirectory(self.base, "house")
        self.process = subprocess.Popen(
            [
                *before,
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
        """The next event of this name. Earlier events of other names are skipped."""
        deadline = time.monotonic() + PATIENCE
        while True:
            event: dict[str, Any] = json.loads(self._lines.get(timeout=max(deadline - time.monotonic(), 0)))
            if event["event"] == name:
                return event

    def state(self) -> NetworkRun:
        """The state that `hbroker status` reads."""
        run = self.directory.read()
        assert run is not None
        return run

    def pid(self, name: str) -> int:
        """The process id of a node or gateway."""
        pid = next(run.pid for run in self._runs() if run.name == name)
        assert pid is not None
        return pid

    def pids(self) -> list[int]:
        """The process ids of all nodes and gateways."""
        return [run.pid for run in self._runs() if run.pid is not None]

    def _runs(self) -> list[NodeRun | GatewayRun]:
        state = self.state()
        return [*state.nodes, *state.gateways]

    def close(self) -> None:
        """Ends all processes, however the test ended."""
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
