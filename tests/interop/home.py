"""The network of topologies/home.yaml with two gateways, each for TCP and WebSocket, on free ports. One node
has no store."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests.interop.lines import Place
from tests.product.network import PROJECT, Network, network_of, processes_of

GATEWAYS = ("one", "two")
FORGETFUL = "livingroom"
"""The node without a store."""

PLACES = (
    "home/kitchen",
    "home/livingroom",
    "home/bedroom",
    "home/outside",
    "home/outside/securitycams",
    "weather",
)
"""One place of each owner; the last one is the root's."""


class HomeNetwork:
    """The running network, and operations on it. Made by `home_up`."""

    def __init__(self, network: Network, root: str) -> None:
        self._network, self.root = network, root

    def place(self, gateway: str, client_id: str, *, websocket: bool = False, **fields: Any) -> Place:
        """The address of a gateway, for a client with this id."""
        scheme = "ws://" if websocket else "mqtt://"
        (url,) = (url for url in self._run(gateway)["listeners"] if url.startswith(scheme))
        host, _, port = url.removeprefix(scheme).partition("/")[0].rpartition(":")
        return Place(host, int(port), client_id, websocket=websocket, **fields)

    @property
    def state(self) -> tuple[str, str]:
        """The flag that tells commands where to find the network's join key."""
        return "--state-dir", str(self._network.directory)

    def kill(self, gateway: str) -> None:
        """`kill -9`. The launcher starts the gateway again."""
        os.kill(self._run(gateway)["pid"], signal.SIGKILL)

    def processes(self) -> dict[str, psutil.Process]:
        """The processes of nodes and gateways, by name."""
        state = self._network.state()
        return processes_of([*state["nodes"], *state["gateways"]])

    def log(self, name: str) -> str:
        """The log of a node or a gateway."""
        return (self._network.directory / "house" / f"{name}.log").read_text()

    def _run(self, gateway: str) -> dict[str, Any]:
        return next(run for run in self._network.state()["gateways"] if run["name"] == gateway)


@contextmanager
def home_up(directory: Path, limits: dict[str, int] | None = None) -> Iterator[HomeNetwork]:
    """Starts the network and waits until it is ready. Stops it in order at the end. `limits`: of the
    gateways."""
    with network_of(yaml.safe_dump(_topology(limits or {})), directory) as (network, root):
        yield HomeNetwork(network, root)
    assert network.process.returncode == 0


def _topology(limits: dict[str, int]) -> dict[str, Any]:
    topology: dict[str, Any] = yaml.safe_load((PROJECT / "topologies" / "home.yaml").read_text())
    for node in topology["nodes"]:
        node["listen"] = "127.0.0.1:0"
        if node["name"] == FORGETFUL:
            node["durability"] = "none"
    tcp, websocket = topology["gateways"][0]["listeners"]
    listeners = [{**listener, "address": "127.0.0.1:0"} for listener in (tcp, websocket)]
    gateway = {"workers": 2, "listeners": listeners, **({"limits": limits} if limits else {})}
    topology["gateways"] = [{"name": name, **gateway} for name in GATEWAYS]
    return topology
