"""Subtrees move, and nodes leave, while programs of users publish and subscribe (docs/commands.md)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from hbroker import sync
from tests.product.network import (
    PATIENCE,
    PROJECT,
    Network,
    environment,
    hbroker,
    network_up,
)
from tests.waiting import until

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: home, subtree: home, listen: "127.0.0.1:7701"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7702"}
  - {name: bedroom, subtree: home/bedroom, listen: "127.0.0.1:7703"}
"""
TOPIC = "home/kitchen/oven"
EVERY = 0.002
"""Seconds between two messages."""
LONGEST_GAP = 1.0
"""Seconds, on a machine that does other things too; by itself it is some 20 ms. The simulated network, whose
time stands still for nobody, is held to a quarter second (tests/network/test_moving.py)."""


class House:
    """A running network, and commands to it."""

    def __init__(self, network: Network, root: str) -> None:
        self.network, self.root = network, root

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command to its end."""
        return subprocess.run(
            [*hbroker(arguments[0]), *arguments[1:], "--root", self.root],
            capture_output=True,
            text=True,
            cwd=PROJECT,
            env=environment(),
            timeout=PATIENCE,
            check=False,
        )

    def done(self, *arguments: str) -> str:
        """What a command printed that did what it was told to."""
        ended = self.run(*arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def owner(self, topic: str) -> object:
        """Who owns a topic."""
        return json.loads(self.done("resolve", topic, "--json"))["owner"]

    def states(self) -> dict[str, str]:
        """What `hbroker status` says of each node."""
        (file,) = self.network.directory.glob("*/state.json")
        return {node["name"]: node["state"] for node in json.loads(file.read_text())["nodes"]}

    def await_state(self, node: str, state: str) -> None:
        """Until a node's process is in a state."""
        until(lambda: self.states()[node] == state, f"{node} is {state}", PATIENCE, found=self.states)

    def await_owner(self, topic: str, owner: str) -> None:
        """Until a node owns a topic."""
        found = partial(self.owner, topic)
        until(lambda: found() == owner, f"{owner} owns {topic}", PATIENCE, found=found)


class Traffic:
    """hpub and hsub, and the messages between them."""

    def __init__(self, root: str) -> None:
        host, port = root.split(":")
        place = ["-h", host, "-p", port]
        self._sub = self._start("hsub", *place, "-q", "2", "-t", "home/#", "-F", "%U %p")
        with sync.connect(root) as client:
            until(
                lambda: client.resolve(TOPIC, trace=True).subscriptions > 0, "hsub has subscribed", PATIENCE
            )
        self._pub = self._start("hpub", *place, "-q", "2", "-t", TOPIC, "-l")
        self._is_over = threading.Event()
        self._writer = threading.Thread(target=self._write)
        self.lines: list[tuple[float, int]] = []
        self._reader = threading.Thread(target=self._read)
        self.sent = 0
        self._writer.start()
        self._reader.start()

    def stop(self) -> None:
        """Ends it once everything that was sent has come."""
        self._is_over.set()
        self._writer.join(PATIENCE)
        assert self._pub.wait(PATIENCE) == 0
        until(
            lambda: len(self.lines) >= self.sent,
            f"all {self.sent} messages have come",
            PATIENCE,
            found=lambda: f"{len(self.lines)} of them",
        )
        self.kill()
        assert [number for _, number in self.lines] == list(range(1, self.sent + 1)), "once, and in order"

    def kill(self) -> None:
        """Leaves nothing behind."""
        self._is_over.set()
        self._writer.join(PATIENCE)
        for process in (self._pub, self._sub):
            process.kill()
            process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self._pub.stdin, self._pub.stdout, self._sub.stdin, self._sub.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    @property
    def longest_gap(self) -> float:
        """Seconds between two messages that came."""
        times = [at for at, _ in self.lines]
        return max(later - earlier for earlier, later in pairwise(times))

    def _start(self, *command: str) -> subprocess.Popen[str]:
        program = [sys.executable, "-m", f"hbroker.clients.{command[0]}", *command[1:]]
        return subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment()
        )

    def _write(self) -> None:
        assert self._pub.stdin is not None
        while not self._is_over.wait(EVERY):
            self.sent += 1
            self._pub.stdin.write(f"{self.sent}\n")
            self._pub.stdin.flush()
        self._pub.stdin.close()

    def _read(self) -> None:
        assert self._sub.stdout is not None
        for line in self._sub.stdout:
            at, number = line.split()
            self.lines.append((float(at), int(number)))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    file = tmp_path / "house.yaml"
    file.write_text(FILE)
    with network_up(file, tmp_path / "state") as (network, root):
        yield House(network, root)


def test_moves_and_leaves_disturb_no_program(house: House) -> None:
    traffic = Traffic(house.root)
    try:
        assert house.done("move", "home/kitchen", "bedroom").startswith("home/kitchen went from kitchen")
        assert house.owner(TOPIC) == "bedroom"
        assert json.loads(house.done("leave", "home", "--json"))["left"]
        assert house.owner(TOPIC) == "bedroom"
        assert house.owner("home/x") == "root"
        answer = json.loads(house.done("move", "home/kitchen", "kitchen", "--json"))
        assert (answer["moved"], answer["from"], answer["owner"]) == (True, "bedroom", "kitchen")
        traffic.stop()
    finally:
        traffic.kill()
    assert traffic.sent > 100
    assert traffic.longest_gap < LONGEST_GAP
    house.await_state("home", "left")


def test_what_was_moved_stays_there_when_processes_are_started_again(house: House) -> None:
    house.done("move", "home/kitchen", "bedroom")
    for name in ("kitchen", "bedroom"):
        process: psutil.Process = house.network.processes()[name]
        process.kill()
        house.network.event("back")
    house.await_owner(TOPIC, "bedroom")
    assert house.owner("home/bedroom/x") == "bedroom"


def test_a_node_that_left_by_order_is_not_started_again(house: House) -> None:
    house.done("leave", "kitchen")
    assert house.network.event("left")["node"] == "kitchen"
    house.await_state("kitchen", "left")
    assert house.owner(TOPIC) == "home"
    assert house.states()["bedroom"] == "up"


def test_what_makes_no_sense_is_refused_with_what_to_do(house: House) -> None:
    for arguments, text in (
        (("leave", "root"), "the root owns what nobody else holds"),
        (("leave", "cellar"), "no node is called 'cellar' now: `hbroker tree` lists"),
        (("leave", "a/b"), "'a/b' is not the name of a node"),
        (("move", "home/+", "kitchen"), "without wildcards"),
        (("move", "home/kitchen", "cellar"), "no node is called 'cellar'"),
        (("move", "$SYS/nodes/kitchen", "bedroom"), "every node owns its own part of $SYS"),
    ):
        ended = house.run(*arguments)
        assert ended.returncode == 1, arguments
        assert text in ended.stderr, ended.stderr
    assert house.owner(TOPIC) == "kitchen"
