"""hbroker as it is measured: one node for its own clients, or an owner and a gateway for MQTT's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import hbroker
from bench.brokers import Started
from bench.mqtt import MqttPublisher, MqttSubscriber
from bench.native import NativePublisher, NativeSubscriber
from bench.plan import Plan
from bench.secure import issue
from bench.transport import Address, NoAnswer, Publisher, Subscriber
from hbroker.bench.launching import announcement, launch
from hbroker.bench.plan import Transport

__all__ = ["Gateway", "Node", "announced"]

_HBROKER: Final = (sys.executable, "-m", "hbroker")


class Node:
    """One node that owns every topic: `topologies/single.yaml` on any free port."""

    name = "hbroker"
    transport: Transport = "hbroker"

    def version(self) -> str | None:
        return hbroker.__version__

    def start(self, directory: Path) -> Started:
        flags = ["--name", "root", "--subtree", "", "--listen", "127.0.0.1:0", *self.flags(directory)]
        with launch(directory, [*_HBROKER, "node", *flags]) as process:
            return process, announced(process)

    def flags(self, directory: Path) -> list[str]:
        """More flags, for what is measured beside it."""
        return []

    def publisher(self, address: Address, plan: Plan) -> Publisher:
        return NativePublisher(address, plan.pairs, plan.qos)

    def subscriber(self, address: Address, plan: Plan) -> Subscriber:
        return NativeSubscriber(address, plan.pairs, plan.qos, plan.subscribers)


class Gateway:
    """The smallest network that takes MQTT clients, as `hbroker up` runs it: a launcher, an owner of every
    topic, a gateway. All three are counted."""

    name = "hbroker"
    transport: Transport = "mqtt"

    def __init__(self, *, tls: bool = False) -> None:
        self._tls = tls

    def version(self) -> str | None:
        return hbroker.__version__

    def start(self, directory: Path) -> Started:
        topology = directory / "bench.yaml"
        topology.write_text(json.dumps(self._topology(directory)))  # which is YAML, too
        flags = ["--json", "--state-dir", str(directory / "state"), *self.flags()]
        with launch(directory, [*_HBROKER, "up", *flags, str(topology)]) as process:
            told = json.loads(announcement(process))
            if told["event"] != "ready":
                raise NoAnswer(f"the network did not become ready: {told}")
            (url,) = told["gateways"][0]["listeners"]
            host, _, port = url.partition("://")[2].rpartition(":")
            return process, (host, int(port))

    def flags(self) -> list[str]:
        """More flags, for what is measured beside it."""
        return []

    def publisher(self, address: Address, plan: Plan) -> Publisher:
        return MqttPublisher(address, plan.pairs, plan.qos, tls=self._tls)

    def subscriber(self, address: Address, plan: Plan) -> Subscriber:
        return MqttSubscriber(address, plan.pairs, plan.qos, plan.subscribers, tls=self._tls)

    def _topology(self, directory: Path) -> dict[str, Any]:
        listener: dict[str, Any] = {"address": "127.0.0.1:0"}
        if self._tls:
            pair = issue(directory)
            listener["tls"] = {"certificate": str(pair.certificate), "key": str(pair.key)}
        return {
            "nodes": [{"name": "root", "subtree": "", "listen": "127.0.0.1:0"}],
            "gateways": [{"name": "gateway", "listeners": [listener]}],
        }


def announced(process: subprocess.Popen[bytes]) -> Address:
    """The address in the `ready` line of a node or a gateway. Raises NoAnswer where another line comes."""
    line = announcement(process)
    found = re.search(r"(\d+\.\d+\.\d+\.\d+):(\d+)", line)
    if not line.startswith("ready") or found is None:
        raise NoAnswer(f"it did not become ready: {line}")
    return found[1], int(found[2])
