"""A plant of three nodes in which the hall has most of the traffic, and the commands of a user for it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.product.network import PROJECT, Network, environment, hbroker
from tests.waiting import until

TOPOLOGY = """
nodes:
  - {name: root, subtree: "",         listen: "127.0.0.1:7700"}
  - {name: hall, subtree: plant/hall, listen: "127.0.0.1:7701"}
  - {name: yard, subtree: plant/yard, listen: "127.0.0.1:7702"}
gateways:
  - {name: gateway, listeners: [{address: "127.0.0.1:0"}]}
"""
SCENARIO = """
about: a plant in whose hall is most of what goes on; nobody but the root was given its gate
top: plant
mqtt: 0.25
kinds:
  press: {reports: {stroke: {every: 0.1, jitter: 0.2, qos: 1, bytes: [24, 48]}}}
  gauge: {reports: {level: {every: 0.1, jitter: 0.2, qos: 1, bytes: [8, 16]}}}
rooms:
  - {path: hall, devices: {press: 16}}
  - {path: yard, devices: {gauge: 4}}
  - {path: gate, devices: {gauge: 4}}
skew: {room: hall, share: 0.8}
"""
PATIENCE = 100.0
SPARK_PATIENCE = 600.0

Result = dict[str, Any]
"""The JSON that a command prints with `--json`."""


class Plant:
    """A running network, and commands for it. Files are written to `place`."""

    def __init__(self, network: Network, root: str, place: Path) -> None:
        self._network, self._root, self._place = network, root, place
        self._scenario = place / "skewed.yaml"
        self._scenario.write_text(SCENARIO)

    @property
    def telemetry(self) -> Path:
        """The folder to which its processes write telemetry."""
        (network,) = (path for path in self._network.directory.iterdir() if path.is_dir())
        return network / "telemetry"

    def simulate(self, seconds: float) -> Result:
        """Simulates its devices for this time."""
        return _run_json(*self._sim(seconds), patience=seconds + PATIENCE)

    def analyse(self, *flags: str) -> tuple[Result, Path]:
        """The result of the analysis, and the plan that it wrote."""
        out = self._place / "analysis"
        command = [*hbroker("analyze"), str(self.telemetry), "--out", str(out), *flags, "--json"]
        return _run_json(*command, patience=SPARK_PATIENCE), out

    def apply(self, plan: Path, measure: float) -> Result:
        """Carries out a plan, and measures for this time."""
        command = [*hbroker("apply"), str(plan), "--measure", str(measure), "--root", self._root, "--json"]
        command += ["--state-dir", str(self._network.directory)]
        return _run_json(*command, patience=measure + PATIENCE)

    @contextmanager
    def simulating(self) -> Iterator[Result]:
        """Simulates its devices until the block ends. The result is complete after the block."""
        result: Result = {}
        progress = self._place / "progress"
        with (
            progress.open("w") as errors,
            subprocess.Popen(
                self._sim(3_600),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=PROJECT,
                env=environment(),
            ) as process,
        ):
            try:
                until(lambda: "playing" in progress.read_text(), "its devices play", PATIENCE)
                yield result
                assert process.poll() is None, "they played to the end"
                process.send_signal(signal.SIGINT)
                result |= json.loads(process.communicate(timeout=PATIENCE)[0])
            finally:
                process.kill()

    def _sim(self, seconds: float) -> list[str]:
        place = ["--root", self._root, "--state-dir", str(self._network.directory)]
        return [*hbroker("sim"), str(self._scenario), "--duration", str(seconds), *place, "--json"]


def _run_json(*command: str, patience: float) -> Result:
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=PROJECT, env=environment(), timeout=patience, check=False
    )
    assert ended.returncode == 0, ended.stderr
    result: Result = json.loads(ended.stdout)
    return result
