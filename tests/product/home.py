"""A network of four nodes, commands for it, and traffic of hpub and hsub."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from functools import partial
from itertools import pairwise

from hbroker import sync
from tests.product.network import PATIENCE, PROJECT, Network, environment, run_hbroker
from tests.waiting import until

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: home, subtree: home, listen: "127.0.0.1:7701"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7702"}
  - {name: bedroom, subtree: home/bedroom, listen: "127.0.0.1:7703"}
"""
TWO_ROOMS = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
  - {name: bedroom, subtree: home/bedroom, listen: "127.0.0.1:7702"}
"""
TOPIC = "home/kitchen/oven"
KEYED = ("move", "leave", "apply", "clients", "kick")
EVERY = 0.002
"""Seconds between two messages."""


class HomeNetwork:
    """A running network, and commands to it."""

    def __init__(self, network: Network, root: str) -> None:
        self.network, self.root = network, root

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs one command to its end."""
        return run_hbroker(*arguments, "--root", self.root, *self._state(arguments[0]))

    def _state(self, command: str) -> list[str]:
        """The flag that tells commands where to find the network's join key."""
        return ["--state-dir", str(self.network.directory)] if command in KEYED else []

    def done(self, *arguments: str) -> str:
        """Runs a command that must succeed. Returns what it printed."""
        ended = self.run(*arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def owner(self, topic: str) -> object:
        """The owner of a topic."""
        return json.loads(self.done("resolve", topic, "--json"))["owner"]

    def states(self) -> dict[str, str]:
        """The state of each node in `hbroker status`."""
        return {node["name"]: node["state"] for node in self.network.state()["nodes"]}

    def await_state(self, node: str, state: str) -> None:
        """Waits until a node's process is in a state."""
        until(lambda: self.states()[node] == state, f"{node} is {state}", PATIENCE, found=self.states)

    def await_owner(self, topic: str, owner: str) -> None:
        """Waits until a node owns a topic."""
        found = partial(self.owner, topic)
        until(lambda: found() == owner, f"{owner} owns {topic}", PATIENCE, found=found)


def next_payload(messages: sync.Subscription) -> bytes:
    """The payload of the next message, which must arrive in time."""
    message = messages.next(timeout=PATIENCE)
    assert message is not None, "nothing came in time"
    return message.payload


class Traffic:
    """hpub and hsub, and the messages between them."""

    def __init__(self, root: str, filter: str = "home/#") -> None:
        host, port = root.split(":")
        place = ["-h", host, "-p", port]
        self._sub = self._start("hsub", *place, "-q", "2", "-t", filter, "-F", "%U %p")
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
        """Stops publishing, and waits until every message has arrived."""
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
        """Ends both processes."""
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
        """The longest time between two received messages, in seconds."""
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
