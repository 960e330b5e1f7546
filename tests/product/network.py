"""A network as a user runs it: `hbroker up` in a process of its own, on free ports, and its events."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tests.waiting import until

PROJECT = Path(__file__).parent.parent.parent
PATIENCE = 60.0
"""Seconds: far more than anything here takes, even on a busy machine."""


class Network:
    """A launcher and its nodes. Made by `network_up`."""

    def __init__(
        self,
        file: Path,
        directory: Path,
        flags: tuple[str, ...] = ("--any-port",),
        *,
        has_admin: bool = False,
    ) -> None:
        if not has_admin:
            flags = ("--no-admin", *flags)
        self.began = time.monotonic()
        self.directory = directory
        self.process = subprocess.Popen(
            [*hbroker("up"), str(file), "--json", "--state-dir", str(directory), *flags],
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            env=environment(),
        )
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def event(self, name: str) -> dict[str, Any]:
        """The next event of this name. Earlier events of other names are skipped. Raises queue.Empty."""
        deadline = time.monotonic() + PATIENCE
        while True:
            event = self._events.get(timeout=max(deadline - time.monotonic(), 0))
            if event["event"] == name:
                return event

    def processes(self) -> dict[str, psutil.Process]:
        """The processes of the nodes by name."""
        return processes_of(self.state()["nodes"])

    def state(self) -> dict[str, Any]:
        """The launcher's state of its nodes and gateways."""
        (file,) = self.directory.glob("*/state.json")
        state: dict[str, Any] = json.loads(file.read_text())
        return state

    def kill_node(self, name: str) -> None:
        """Kills a node, and waits until it is back."""
        self.processes()[name].kill()
        while self.event("back")["node"] != name:
            pass

    def suspend(self) -> None:
        """Stops the launcher and all nodes and gateways where they are (SIGSTOP). Returns when none of their
        threads runs or waits for a disk any more."""
        launcher = psutil.Process(self.process.pid)
        launcher.suspend()  # It starts nothing any more.
        for process in (launcher, *launcher.children(recursive=True)):
            process.suspend()
            until(partial(_is_stopped, process.pid), f"{process} is stopped", PATIENCE)

    def kill(self) -> None:
        """Kills the launcher and all nodes and gateways."""
        launcher = psutil.Process(self.process.pid)
        launcher.suspend()  # It starts nothing any more.
        victims = launcher.children(recursive=True)
        self.process.kill()
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        psutil.wait_procs(victims, PATIENCE)
        self.process.wait(PATIENCE)

    def close(self) -> None:
        """Ends all processes, however the test ended."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self._reader.join(PATIENCE)
            assert self.process.stdout is not None
            self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))


@contextmanager
def network_up(
    file: Path, directory: Path, flags: tuple[str, ...] = ("--any-port",), *, has_admin: bool = False
) -> Iterator[tuple[Network, str]]:
    """A running network, and the address of its root, once the network is ready. `has_admin`: with its HTTP
    API."""
    network = Network(file, directory, flags, has_admin=has_admin)
    try:
        yield network, network.event("ready")["root"]
    finally:
        network.close()


def network_of(topology: str, directory: Path) -> AbstractContextManager[tuple[Network, str]]:
    """`network_up` with a file of this text, `house.yaml`; the state is in `state` beside it."""
    file = directory / "house.yaml"
    file.write_text(topology)
    return network_up(file, directory / "state")


def _is_stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
    return all(state in "TZ" for state in states)


def processes_of(runs: list[dict[str, Any]]) -> dict[str, psutil.Process]:
    """The processes of nodes or gateways in a launcher's state, by name. Processes that have ended are
    left out, even if the launcher has not noticed yet."""
    found = {}
    for run in runs:
        if run["pid"] is not None:
            with suppress(psutil.NoSuchProcess):
                found[run["name"]] = psutil.Process(run["pid"])
    return found


def tree(root: str) -> dict[str, dict[str, Any]]:
    """What `hbroker tree --json` prints for each node, by name."""
    done = run_hbroker("tree", "--root", root, "--json", check=True)
    return {node["name"]: node for node in json.loads(done.stdout)["nodes"]}


def run_hbroker(
    command: str, *arguments: object, patience: float = PATIENCE, check: bool = False
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end. `check`: it must succeed."""
    done = subprocess.run(
        [*hbroker(command), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
        cwd=PROJECT,
        env=environment(),
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def hbroker(command: str) -> list[str]:
    """The beginning of a command line."""
    return [sys.executable, "-m", "hbroker", command]


def environment() -> dict[str, str]:
    """The environment of the tests, with the package of this checkout."""
    return {**os.environ, "PYTHONPATH": str(PROJECT)}
