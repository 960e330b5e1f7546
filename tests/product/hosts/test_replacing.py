"""SIGUSR2: a node is replaced by a new process on the same sockets, while messages pass."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hbroker import sync
from tests.product.network import PATIENCE, PROJECT, environment, hbroker
from tests.waiting import until

MESSAGES = 400


class Replaceable:
    """A root with a file of its own, whose process may be another one from time to time."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self.folder = folder
        self.file = folder / "node.yaml"
        self._lines = ["name: root", 'subtree: ""', "memory: root.cuts", *lines]
        self.write("listen: 127.0.0.1:0")
        self._log = folder / "node.log"
        with self._log.open("w") as log:
            command = [*hbroker("node"), "--config", str(self.file)]
            self._first = subprocess.Popen(command, stdout=log, stderr=log, cwd=PROJECT, env=environment())
        self.await_ready(1)
        self.root = self.log().split("ready ", 1)[1].splitlines()[0].split()[-1]
        self.write(f"listen: {self.root}")

    def write(self, *lines: str) -> None:
        self.file.write_text("\n".join([*self._lines, *lines, ""]))

    def log(self) -> str:
        return self._log.read_text()

    def pid(self) -> int:
        """The process that serves."""
        successors = [line.split("successor=")[1] for line in self.log().splitlines() if "successor=" in line]
        failed = self.log().count("not_replaced")
        return int(successors[-1]) if len(successors) > failed else self._first.pid

    def await_ready(self, times: int) -> None:
        until(lambda: self.log().count("ready root") >= times, "the node serves", PATIENCE, found=self.log)

    def replace(self) -> None:
        times = self.log().count("ready root")
        os.kill(self.pid(), signal.SIGUSR2)
        self.await_ready(times + 1)

    def end(self) -> None:
        for process in psutil.process_iter(["cmdline"]):
            if str(self.file) in (process.info["cmdline"] or []):
                process.kill()
        self._first.wait(PATIENCE)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Replaceable]:
    node = Replaceable(tmp_path, "workers: 2")
    try:
        yield node
    finally:
        node.end()


def test_no_message_is_lost_while_a_node_is_replaced(node: Replaceable) -> None:
    received: list[int] = []
    ended = threading.Event()

    def read() -> None:
        with sync.connect(node.root, client_id="reader", session_expiry=600, session_key="k") as client:
            messages = client.subscribe("home/#", qos=1)
            ended.clear()
            subscribed.set()
            while len(set(received)) < MESSAGES:
                message = messages.next(timeout=PATIENCE)
                if message is None:
                    break
                received.append(int(message.payload))
        ended.set()

    subscribed = threading.Event()
    reader = threading.Thread(target=read)
    reader.start()
    assert subscribed.wait(PATIENCE)
    first = node.pid()
    with sync.connect(node.root) as publisher:
        for number in range(MESSAGES):
            if number in (MESSAGES // 4, MESSAGES // 2):
                node.replace()
            publisher.publish("home/lamp", str(number), qos=1, timeout=PATIENCE)
    reader.join(PATIENCE)
    assert ended.is_set()
    assert sorted(set(received)) == list(range(MESSAGES))
    assert not psutil.pid_exists(first) or psutil.Process(first).status() == psutil.STATUS_ZOMBIE
    assert node.log().count(" replacing ") == 2


def test_a_successor_that_cannot_run_changes_nothing(node: Replaceable) -> None:
    with sync.connect(node.root) as client:
        node.write("wokers: 2", f"listen: {node.root}")
        os.kill(node.pid(), signal.SIGUSR2)
        until(lambda: "not_replaced" in node.log(), "the successor has failed", PATIENCE, found=node.log)
        assert "unknown key 'wokers'" in node.log()
        client.publish("home/lamp", "on", qos=1)
        node.write(f"listen: {node.root}")
        node.replace()
        client.publish("home/lamp", "off", qos=1)


def test_another_number_of_workers_takes_new_sockets(node: Replaceable) -> None:
    node.file.write_text(node.file.read_text().replace("workers: 2", "workers: 1"))
    node.replace()
    with sync.connect(node.root) as client:
        client.publish("home/lamp", "on", qos=1)


def test_sigterm_ends_a_successor_that_has_not_taken_over(node: Replaceable) -> None:
    first = node.pid()
    os.kill(first, signal.SIGUSR2)
    until(lambda: " replacing " in node.log(), "a successor was started", PATIENCE, found=node.log)
    os.kill(first, signal.SIGTERM)
    until(lambda: not _runs(first), "the node has ended", PATIENCE, found=node.log)
    successor = node.pid()
    if " root ended" in node.log() and node.log().count("ready root") == 1:
        until(lambda: not _runs(successor), "its successor has ended", PATIENCE, found=node.log)


def test_without_a_store_nothing_is_replaced(tmp_path: Path) -> None:
    node = Replaceable(tmp_path, "durability: none")
    try:
        os.kill(node.pid(), signal.SIGUSR2)
        until(lambda: "not_replaced" in node.log(), "it is refused", PATIENCE, found=node.log)
        with sync.connect(node.root) as client:
            client.publish("home/lamp", "on", qos=1)
    finally:
        node.end()


def _runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
