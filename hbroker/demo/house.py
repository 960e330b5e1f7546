"""The processes of the demo: the network, the capture, and the commands that look at it.

`stop` ends them: with SIGINT, as Ctrl-C would, and with SIGKILL if that does not suffice.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hbroker.addresses import Address, parse_address
from hbroker.capture.packet_counts import PacketCounts

__all__ = ["Capture", "House", "HouseError", "Node", "run"]

_READY_S: Final = 15.0
_END_S: Final = 5.0


class HouseError(Exception):
    """A program of the demo has failed. The text is the reason."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker of the network."""

    name: str
    subtree: str
    address: Address


class House:
    """The network of `home.yaml`, on free ports. `start` sets `root` and `nodes`.

    `key_log`: the file with the keys of its datagrams, for a capture.
    """

    def __init__(self, directory: Path) -> None:
        self.root = ""
        self.nodes: tuple[Node, ...] = ()
        self.seconds = 0.0
        """Seconds until every node had joined."""
        self.key_log = directory / "keys.log"
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns once every node has joined. Raises HouseError."""
        command = ("up", "--any-port", "--no-admin", "--json", "--state-dir", str(self._directory))
        self._process = _start("hbroker", *command, environment={"HBROKER_KEYLOG": str(self.key_log)})
        assert self._process.stdout is not None, "it was asked for"
        deadline = time.monotonic() + _READY_S
        while (line := _line(self._process, self._process.stdout, deadline)) is not None:
            event = json.loads(line)
            if event["event"] == "ready":
                self.root, self.seconds = event["root"], event["seconds"]
                self.nodes = tuple(
                    Node(node["name"], node["subtree"], parse_address(node["address"]))
                    for node in event["nodes"]
                )
                return
        self.stop()
        raise HouseError(f"the network did not come up within {_READY_S:g} s")

    def simulate(self, seconds: float) -> None:
        """Has simulated devices live in the house. Their picture and their tables are shown. Raises
        HouseError."""
        flags = ["--duration", str(seconds), "--root", self.root, "--state-dir", str(self._directory)]
        command = [sys.executable, "-m", "hbroker", "sim", "home", *flags]
        if subprocess.run(command, check=False).returncode:
            raise HouseError("hbroker sim failed")

    def stop(self) -> float:
        """Ends all processes of the network. Returns the seconds that this took. Idempotent."""
        began = time.monotonic()
        if self._process is not None:
            _end(self._process)
            self._process = None
        return time.monotonic() - began


class Capture:
    """A capture of the loopback interface. `refusal`: why there is none."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        self._process: subprocess.Popen[str] | None = None

    def start(self, house: House) -> None:
        """Returns when it captures the datagrams of the house's nodes, or is refused."""
        ports = [argument for node in house.nodes for argument in ("--port", str(node.address[1]))]
        keys = ("--key-log", str(house.key_log))
        process = _start("hbroker", "capture", "--count", "--json", *keys, *ports)
        assert process.stderr is not None, "it was asked for"
        line = _line(process, process.stderr, time.monotonic() + _READY_S) or ""
        if line.startswith("capturing"):
            self._process = process
            return
        _, errors = _end(process)
        self.refusal = (line + errors).strip().rpartition("\n")[2].removeprefix(
            "hbroker: "
        ) or "it did not begin"

    def stop(self) -> PacketCounts | None:
        """Ends the capture. Returns its counts; None: there was no capture. Idempotent."""
        if self._process is None:
            return None
        process, self._process = self._process, None
        output, _ = _end(process)
        return PacketCounts.from_json(json.loads(output)) if output else None


def run(*arguments: str, timeout: float = 10.0) -> list[str]:
    """The output of an `hbroker` command, line by line. Raises HouseError."""
    command = [sys.executable, "-m", "hbroker", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise HouseError(f"hbroker {arguments[0]} did not end within {timeout:g} s") from None
    if done.returncode:
        raise HouseError(f"hbroker {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.splitlines()


def _start(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    # In its own session: Ctrl-C reaches only this program, which then ends the others in order.
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )


def _line(process: subprocess.Popen[str], stream: Any, deadline: float) -> str | None:
    """The next line; None: there is none by the deadline. (The writer flushes whole lines.)"""
    while (pause := deadline - time.monotonic()) > 0:
        if select.select([stream], [], [], pause)[0]:
            line: str = stream.readline()
            if line:
                return line
            errors = process.communicate()[1].strip()
            raise HouseError(errors or f"a program of the demo ended with code {process.returncode}")
    return None


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ends a program as Ctrl-C would; returns its remaining standard output and standard error."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()
