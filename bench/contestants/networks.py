"""hbroker as it is measured: one node for its own clients, or an owner and a gateway for MQTT clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hbroker
from bench.contestants.brokers import Started
from bench.secure import issue
from hbroker.bench.brokers import start_network, start_node
from hbroker.bench.plan import Transport

__all__ = ["Gateway", "Node"]


class Node:
    """One node that owns every topic: `topologies/single.yaml` on any free port."""

    name = "hbroker"
    transport: Transport = "hbroker"

    def version(self) -> str | None:
        return hbroker.__version__

    def start(self, directory: Path) -> Started:
        return start_node(directory, *self.flags(directory))

    def flags(self, directory: Path) -> list[str]:
        """Further flags, for variants of the measurement."""
        return []


class Gateway:
    """The smallest network with a gateway, as `hbroker up` runs it: a launcher, an owner of every topic, a
    gateway.

    All three processes are counted.
    """

    name = "hbroker"
    transport: Transport = "mqtt"

    def __init__(self, *, tls: bool = False) -> None:
        self._tls = tls

    def version(self) -> str | None:
        return hbroker.__version__

    def start(self, directory: Path) -> Started:
        listener: dict[str, Any] = {"address": "127.0.0.1:0"}
        if self._tls:
            pair = issue(directory)
            listener["tls"] = {"certificate": str(pair.certificate), "key": str(pair.key)}
        topology = {
            "nodes": [{"name": "root", "subtree": ""}],
            "gateways": [{"name": "gateway", "listeners": [listener]}],
        }
        return start_network(directory, topology, "gateway", *self.flags())

    def flags(self) -> list[str]:
        """Further flags, for variants of the measurement."""
        return []
