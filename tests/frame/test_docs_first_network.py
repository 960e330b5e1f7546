"""The commands of docs/first-network.md run in a real network, and print what the page says.

The page's blocks with `title="Terminal N"` are the test. Those of `sh` run in that terminal. Those of `text`
are what the terminal prints next, in which `…` stands for any text, and `^C` for Ctrl-C.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.frame.checkout import ROOT, run
from tests.needs import need_mosquitto
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

PATIENCE = 60.0
"""Seconds: far more than any command of the page takes, even on a busy machine."""

BLOCK = re.compile(r'^```(sh|text) title="Terminal (\d)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
RUNS_ON = re.compile(r"hbroker up (?!--detach)|hbroker node |hsub (?!.*-C)")
"""Begins a command that runs until Ctrl-C, or until the network is stopped."""
INTERRUPT = "^C\n"

VARIES = re.compile(r"(…|\d+\.\d+|(?<=:)\d+|\d{6,}| +)")
"""The rest of a line, a time, a port, an epoch, and the space between columns."""


class Terminal:
    """Runs commands one after the other, and has what they printed."""

    def __init__(self, directory: Path, output: Path, environment: dict[str, str]) -> None:
        self._directory, self._output, self._environment = directory, output, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._read_up_to = 0
        output.touch()

    def run(self, commands: str) -> None:
        """Runs commands, to their end unless the last one runs on."""
        self.close()
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", commands],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )
        if RUNS_ON.match(commands) is None:
            assert self._process.wait(PATIENCE) == 0, f"{commands}: {self._text()}"

    def expect(self, shown: str) -> None:
        """Waits until the terminal has printed this, behind what was expected before."""
        pattern = as_pattern(shown)
        until(
            lambda: pattern.search(self._text(), self._read_up_to) is not None,
            shown,
            PATIENCE,
            found=lambda: self._text()[self._read_up_to :],
        )
        found = pattern.search(self._text(), self._read_up_to)
        assert found is not None
        self._read_up_to = found.end()

    def interrupt(self) -> None:
        """Presses Ctrl-C, and waits until the command has ended."""
        assert self._process is not None, "a command runs"
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(PATIENCE)

    def close(self) -> None:
        """Ends a command that runs on."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(PATIENCE)

    def _text(self) -> str:
        return self._output.read_text("utf-8")


def as_pattern(shown: str) -> re.Pattern[str]:
    """A pattern of the lines that a block shows. Times, ports and epochs may be others."""
    lines = ["(?:.*\n)*?" if line == "…\n" else _line(line) for line in shown.splitlines(keepends=True)]
    return re.compile("^" + "".join(lines), re.MULTILINE)


def _line(text: str) -> str:
    parts = VARIES.split(text)
    return "".join(re.escape(part) if not number % 2 else _varying(part) for number, part in enumerate(parts))


def _varying(part: str) -> str:
    if part == "…":
        return ".*"
    return " +" if part.isspace() else r"\d+(?:\.\d+)?"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory with the page's topology, in which every port is a free one."""
    text = (ROOT / "topologies" / "home.yaml").read_text("utf-8")
    with ExitStack() as bound:
        for port in range(7700, 7706):
            free = bound.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            free.bind(("127.0.0.1", 0))
            text = text.replace(f":{port}", f":{free.getsockname()[1]}")
    directory = tmp_path / "checkout"
    (directory / "topologies").mkdir(parents=True)
    (directory / "topologies" / "home.yaml").write_text(re.sub(r":(1883|8083)\b", ":0", text), "utf-8")
    return directory


@pytest.fixture
def terminals(checkout: Path) -> Iterator[dict[str, Terminal]]:
    """The terminals of the page, by number."""
    topology = (checkout / "topologies" / "home.yaml").read_text("utf-8")
    root = re.findall(r"listen: (127\.0\.0\.1:\d+)\n", topology)[0]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": str(ROOT),
        "HBROKER_ROOT": root,
        "XDG_CONFIG_HOME": str(checkout / "config"),
    }
    found = {number: Terminal(checkout, checkout / f"terminal_{number}", environment) for number in "1234"}
    try:
        yield found
    finally:
        run(["hbroker", "down"], cwd=checkout, PYTHONPATH=str(ROOT))
        for terminal in found.values():
            terminal.close()


def test_the_page_is_true(checkout: Path, terminals: dict[str, Terminal]) -> None:
    need_mosquitto()
    page = (ROOT / "docs" / "first-network.md").read_text("utf-8")
    blocks = BLOCK.findall(page)
    assert len(blocks) == page.count("\n```sh") + page.count("\n```text") > 20
    for kind, number, text in blocks:
        if kind == "text":
            terminal, shown = terminals[number], text.removeprefix(INTERRUPT)
            if shown != text:
                terminal.interrupt()
            if shown:
                terminal.expect(shown)
            continue
        if text.startswith("mosquitto"):
            _set_port_of_mosquitto(checkout)
        if text.startswith("hbroker node"):
            until(lambda: _state(checkout)["kitchen"]["pid"] is None, "the node has ended", PATIENCE)
        terminals[number].run(text)


def _state(checkout: Path) -> dict[str, dict[str, object]]:
    """What the launcher says of each node and gateway, by name."""
    state = json.loads((checkout / ".hbroker" / "home" / "state.json").read_text("utf-8"))
    return {process["name"]: process for process in (*state["nodes"], *state["gateways"])}


def _set_port_of_mosquitto(checkout: Path) -> None:
    """Writes the default flags of mosquitto's clients, which they read from files."""
    listeners = _state(checkout)["gateway"]["listeners"]
    assert isinstance(listeners, list)
    port = re.findall(r"^mqtt://.*:(\d+)$", listeners[0])[0]
    for client in ("mosquitto_pub", "mosquitto_sub"):
        file = checkout / "config" / client
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"-p {port}\n", "utf-8")
