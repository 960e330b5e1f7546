"""The network of topologies/home.yaml with two gateways, each for TCP and WebSocket, on free ports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.interop.clients import PATIENCE_S
from tests.interop.lines import Place
from tests.product.network import PROJECT, environment, hbroker

GATEWAYS = ("one", "two")

PLACES = (
    "home/kitchen",
    "home/livingroom",
    "home/bedroom",
    "home/outside",
    "home/outside/securitycams",
    "weather",
)
"""A place of each owner; the last is the root's."""


class House:
    """What `hbroker up` runs. `limits`: of the gateways."""

    def __init__(self, directory: Path, limits: dict[str, int] | None = None) -> None:
        file = directory / "home.yaml"
        file.write_text(yaml.safe_dump(_topology(limits or {})))
        self._state = directory / "state"
        command = [*hbroker("up"), str(file), "--json", "--state-dir", str(self._state)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment()
        )
        assert self._process.stdout is not None
        ready = next(event for event in map(json.loads, self._process.stdout) if event["event"] == "ready")
        self.root: str = ready["root"]

    def place(self, gateway: str, client_id: str, *, websocket: bool = False, **fields: Any) -> Place:
        """Where a client connects to a gateway."""
        scheme = "ws://" if websocket else "mqtt://"
        (url,) = (url for url in self._run(gateway)["listeners"] if url.startswith(scheme))
        host, _, port = url.removeprefix(scheme).partition("/")[0].rpartition(":")
        return Place(host, int(port), client_id, websocket=websocket, **fields)

    def kill(self, gateway: str) -> None:
        """`kill -9`. The launcher will start it again."""
        os.kill(self._run(gateway)["pid"], signal.SIGKILL)

    def processes(self) -> dict[str, psutil.Process]:
        """Nodes and gateways, by name."""
        runs = [*self._network()["nodes"], *self._network()["gateways"]]
        return {run["name"]: psutil.Process(run["pid"]) for run in runs}

    def log(self, name: str) -> str:
        """What a node or a gateway has logged."""
        return (self._state / "home" / f"{name}.log").read_text()

    def close(self) -> None:
        """Ends all of it."""
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(PATIENCE_S) == 0
        finally:
            self._process.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def _run(self, gateway: str) -> dict[str, Any]:
        return next(run for run in self._network()["gateways"] if run["name"] == gateway)

    def _network(self) -> dict[str, Any]:
        network: dict[str, Any] = json.loads((self._state / "home" / "state.json").read_text())
        return network


def _topology(limits: dict[str, int]) -> dict[str, Any]:
    topology: dict[str, Any] = yaml.safe_load((PROJECT / "topologies" / "home.yaml").read_text())
    for node in topology["nodes"]:
        node["listen"] = "127.0.0.1:0"
    tcp, websocket = topology["gateways"][0]["listeners"]
    listeners = [{**listener, "address": "127.0.0.1:0"} for listener in (tcp, websocket)]
    gateway = {"workers": 2, "listeners": listeners, **({"limits": limits} if limits else {})}
    topology["gateways"] = [{"name": name, **gateway} for name in GATEWAYS]
    return topology
