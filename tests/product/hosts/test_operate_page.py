"""The commands of docs/operate.md run on two hosts, and print what the page says.

The page's blocks with `title="A"` and `title="B"` are the test: see `tests.frame.test_docs_first_network`.
Each host is a network namespace with a home of its own. `scp` is a script that copies to the home of the
other host.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from hbroker.sim.lab import Lab, why_impossible
from tests.frame.checkout import ROOT
from tests.frame.test_docs_first_network import BLOCK, as_pattern
from tests.needs import need, need_mosquitto

pytestmark = pytest.mark.timeout(300)

PATIENCE_S = 60.0
HOSTS = {"A": "192.0.2.1", "B": "192.0.2.2"}
SCP = """#!/bin/sh
for file; do :; done
while [ $# -gt 1 ]; do cp -p "$1" "$OTHER_HOME"; shift; done
"""


class Host:
    """One host of the page: a namespace, and its folder."""

    def __init__(self, lab: Lab, name: str, folder: Path, other: Path, programs: Path) -> None:
        self._lab, self._name = lab, name
        self.folder = folder
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("HBROKER", "XDG"))
        }
        self._environment = {
            **inherited,
            "HOME": str(folder),
            "OTHER_HOME": str(other),
            "PATH": os.pathsep.join(
                [str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
            ),
            "PYTHONPATH": str(ROOT),
        }

    def run(self, commands: str) -> str:
        """Runs commands to their end. Returns what they printed. What they leave running goes on."""
        output = self.folder / "output.log"
        with output.open("wb") as sink:
            process = self._lab.start(
                self._name,
                ["bash", "-euo", "pipefail", "-c", commands],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self._environment,
            )
            code = process.wait(PATIENCE_S)
        said = output.read_text("utf-8")
        assert code == 0, f"{self._name}: {commands}: {said}"
        return said

    def end(self) -> None:
        """Kills what still runs in its folder."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if Path(process.cwd()).is_relative_to(self.folder):
                    process.send_signal(signal.SIGKILL)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[dict[str, Host], dict[str, str]]]:
    """The hosts by name, and the address of each in place of the page's."""
    reason = why_impossible()
    need(reason is None, str(reason))
    need_mosquitto()
    need(shutil.which("openssl") is not None, "openssl is not installed (Debian's package of that name)")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "scp").write_text(SCP)
    (programs / "scp").chmod(0o755)
    folders = {name: tmp_path / name for name in HOSTS}
    for folder in folders.values():
        folder.mkdir()
    with Lab(list(HOSTS)) as lab:
        other = {"A": folders["B"], "B": folders["A"]}
        found = {name: Host(lab, name, folders[name], other[name], programs) for name in HOSTS}
        try:
            yield found, {address: lab.address(name) for name, address in HOSTS.items()}
        finally:
            for host in found.values():
                host.end()


def test_the_page_is_true(hosts: tuple[dict[str, Host], dict[str, str]]) -> None:
    by_name, addresses = hosts
    page = (ROOT / "docs" / "operate.md").read_text("utf-8")
    blocks = blocks_of(page)
    assert len(blocks) == page.count("\n```sh") + page.count("\n```text") > 15
    said = {"A": "", "B": ""}
    for kind, name, text in blocks:
        for address, real in addresses.items():
            text = text.replace(address, real)
        if kind == "sh":
            said[name] = by_name[name].run(text)
        else:
            assert as_pattern(text).search(said[name]), f"{name} printed\n{said[name]}\nin place of\n{text}"


def blocks_of(page: str) -> list[tuple[str, str, str]]:
    """The blocks of the page: the kind, the host, the text."""
    numbered = page.replace('title="A"', 'title="Terminal 1"').replace('title="B"', 'title="Terminal 2"')
    hosts = {"1": "A", "2": "B"}
    return [(kind, hosts[number], text) for kind, number, text in BLOCK.findall(numbered)]
