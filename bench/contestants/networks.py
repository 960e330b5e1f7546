"""hbroker as it is measured: one node for its own clients, or an owner and a gateway for MQTT clients."""

from __future__ import annotations

from pathlib import Path

import hbroker
from hbroker.bench.brokers import Started, start_network, start_node
from hbroker.bench.chain import Topology
from hbroker.bench.plan import Transport


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

    def version(self) -> str | None:
        return hbroker.__version__

    def start(self, directory: Path) -> Started:
        return start_network(directory, self.topology(), "gateway", *self.flags())

    def topology(self) -> Topology:
        """The network."""
        return {
            "nodes": [{"name": "root", "subtree": ""}],
            "gateways": [{"name": "gateway", "listeners": [{"address": "127.0.0.1:0"}]}],
            "security": False,  # The other brokers are measured in the clear.
        }

    def flags(self) -> list[str]:
        """Further flags, for variants of the measurement."""
        return []
