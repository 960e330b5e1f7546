"""Nodes and clients as processes, each on its own host, and operations on them."""

from __future__ import annotations

import itertools
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

from hbroker.sim.lab import Lab
from tests import waiting
from tests.lab.journal import Acknowledged, Begun, Reader, Received
from tests.product.network import PROJECT, environment

PATIENCE_S = 60.0
"""Much more than a program needs to be ready, on a busy machine and a bad network."""

PORT = 7_700
_GLANCE_S = 0.2


class Program:
    """A program on a host. It can be killed and started again."""

    def __init__(self, lab: Lab, host: str, command: Sequence[str], log: Path) -> None:
        self.host = host
        self._lab = lab
        self._command = command
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts the program without waiting."""
        with self._log.open("a") as log:
            self._process = self._lab.start(
                self.host,
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=PROJECT,
                env=environment(),
            )

    def await_ready(self) -> None:
        """Waits until the program reports that it is ready."""
        output = self.process.stdout
        assert output is not None
        assert select.select([output], [], [], PATIENCE_S)[0], f"{self.host} is not ready\n{self.log()}"
        assert output.readline().startswith("ready"), f"{self.host} ended\n{self.log()}"

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the program."""
        self.process.send_signal(number)

    def end(self, patience_s: float = PATIENCE_S) -> None:
        """Sends SIGTERM, and waits until the program has ended successfully."""
        self.signal(signal.SIGTERM)
        self.await_end(patience_s)

    def await_end(self, patience_s: float = PATIENCE_S) -> None:
        """Waits until the program has ended by itself, successfully."""
        assert self.process.wait(patience_s) == 0, f"{self.host} failed\n{self.log()}"

    @property
    def process(self) -> subprocess.Popen[str]:
        """The running process, or the last one."""
        assert self._process is not None
        return self._process

    def log(self) -> str:
        """The log of the program."""
        return self._log.read_text()


class Publisher(Program):
    """`tests.lab.publish` on a host."""

    def __init__(self, lab: Lab, host: str, directory: Path, flags: Sequence[str]) -> None:
        journal = directory / f"{host}.journal"
        super().__init__(lab, host, _client("publish", host, journal, flags), directory / f"{host}.log")
        self._reader = Reader(journal)
        self._begun: dict[int, Begun] = {}
        self._acknowledged: dict[int, Acknowledged] = {}

    def begun(self) -> dict[int, Begun]:
        """The messages that the publisher has begun to publish, by number."""
        self._read()
        return self._begun

    def acknowledged(self) -> dict[int, Acknowledged]:
        """The messages whose PUBACK the publisher has received, by number."""
        self._read()
        return self._acknowledged

    def latest(self) -> int:
        """The time at which the latest acknowledged message was begun; 0 if there is none."""
        acknowledged = self.acknowledged()
        return max((self._begun[number].at for number in acknowledged), default=0)

    def await_acknowledged(self, count: int) -> None:
        """Waits until `count` messages have been acknowledged."""
        until(lambda: len(self.acknowledged()) >= count, f"{count} messages of {self.host} are distributed")

    def await_flow(self, since: int) -> None:
        """Waits until a message begun after `since` has been acknowledged."""
        until(lambda: self.latest() > since, f"what {self.host} publishes now is distributed")

    def _read(self) -> None:
        for entry in self._reader.new_entries():
            match entry:
                case Begun():
                    self._begun[entry.number] = entry
                case Acknowledged():
                    self._acknowledged[entry.number] = entry


class Subscriber(Program):
    """`tests.lab.subscribe` on a host."""

    def __init__(self, lab: Lab, host: str, directory: Path, flags: Sequence[str]) -> None:
        journal = directory / f"{host}.journal"
        super().__init__(lab, host, _client("subscribe", host, journal, flags), directory / f"{host}.log")
        self._reader = Reader(journal)
        self._received: list[Received] = []

    def received(self) -> list[Received]:
        """The messages in the order in which they were read."""
        self._received += [entry for entry in self._reader.new_entries() if isinstance(entry, Received)]
        return self._received


class Network:
    """Nodes by name, each on the host with that name. `serving`: the nodes with the lease policy `serve`
    (§5.6)."""

    def __init__(
        self, lab: Lab, directory: Path, subtrees: Mapping[str, str], serving: Container[str] = ()
    ) -> None:
        self.root = f"{lab.address('root')}:{PORT}"
        self.nodes = {
            name: self._node(lab, directory, name, subtree, "serve" if name in serving else "fence")
            for name, subtree in subtrees.items()
        }
        self._lab = lab
        self._directory = directory

    def start(self) -> None:
        """Starts every node, and waits until all have joined."""
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            node.await_ready()

    def restart(self, name: str) -> None:
        """Starts a killed node again, and waits until it has joined."""
        self.nodes[name].start()
        self.nodes[name].await_ready()

    def publisher(self, host: str, topics: Sequence[str], qos: int, *flags: str) -> Publisher:
        """A publisher on a host. It is not started."""
        topic_flags = itertools.chain.from_iterable(("--topic", topic) for topic in topics)
        common = ["--root", self.root, "--qos", str(qos), *topic_flags]
        return Publisher(self._lab, host, self._directory, [*common, *flags])

    def subscriber(self, host: str, filters: Sequence[str], qos: int) -> Subscriber:
        """A subscriber on a host, started, with a complete subscription."""
        filter_flags = itertools.chain.from_iterable(("--filter", filter) for filter in filters)
        flags = ["--root", self.root, "--qos", str(qos), *filter_flags]
        subscriber = Subscriber(self._lab, host, self._directory, flags)
        subscriber.start()
        return subscriber

    def _node(self, lab: Lab, directory: Path, name: str, subtree: str, policy: str) -> Program:
        command = [sys.executable, "-m", "hbroker", "node", "--name", name, "--subtree", subtree]
        command += ["--listen", f"{lab.address(name)}:{PORT}", "--memory", str(directory / f"{name}.cuts")]
        if subtree:
            command += ["--root", self.root, "--policy", policy]
        return Program(lab, name, command, directory / f"{name}.log")


def until(condition: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    """Waits for a condition that is slow to check, because it reads files or runs programs."""
    waiting.until(condition, what, within_s, glance_s=_GLANCE_S)


def _client(module: str, name: str, journal: Path, flags: Sequence[str]) -> list[str]:
    program = [sys.executable, "-m", f"tests.lab.{module}"]
    return [*program, "--name", name, "--journal", str(journal), *flags]
