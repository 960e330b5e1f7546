"""What is measured: processes that are there already, or a broker of hbroker's own that is started for it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hbroker.bench.launching import NoAnswer, announcement, ended, launch, on_cpus
from hbroker.bench.process import descendants
from hbroker.config import parse_address

if TYPE_CHECKING:
    from hbroker.bench.plan import Address, Transport
    from hbroker.runtime.state import NetworkRun

__all__ = ["Broker", "Topology", "own_broker", "own_network", "pids_at"]

_HBROKER: Final = (sys.executable, "-m", "hbroker")
_ANY_PORT: Final = "127.0.0.1:0"

_Started: TypeAlias = "tuple[subprocess.Popen[bytes], Address]"
"""The first process, and where clients come to."""


@dataclass(frozen=True, slots=True)
class Broker:
    """What is measured. `pids`: all its processes, as far as they are known."""

    address: Address
    pids: tuple[int, ...]


Topology: TypeAlias = dict[str, Any]
"""As in a file, but for addresses: all ports are free ones."""


@contextmanager
def own_broker(transport: Transport, workers: int, cpus: frozenset[int] | None) -> Iterator[Broker]:
    """Runs a broker of hbroker's own on these CPUs, as long as the context lasts: a node, or, for MQTT, the
    smallest network that has a gateway. Raises NoAnswer."""
    with _started(cpus, lambda directory: _start(transport, workers, directory)) as broker:
        yield broker


@contextmanager
def own_network(topology: Topology, cpus: frozenset[int] | None) -> Iterator[Broker]:
    """Runs a network, whose root is the address. Raises NoAnswer."""
    with _started(cpus, lambda directory: _up(directory, topology, "root")) as broker:
        yield broker


def pids_at(address: Address, networks: Sequence[NetworkRun]) -> tuple[int, ...]:
    """The processes of the network of this host that has a node or a gateway at this port; (): none has."""
    for network in networks if _is_here(address[0]) else ():
        nodes = [parse_address(node.address) for node in network.nodes]
        listeners = [
            parse_address(url.partition("://")[2].partition("/")[0], default_port=0)
            for gateway in network.gateways
            for url in gateway.listeners
        ]
        if any(port == address[1] for _, port in (*nodes, *listeners)):
            return (network.pid, *descendants(network.pid))
    return ()


def _is_here(host: str) -> bool:
    """Whether it is an address of this machine: others cannot be bound to."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


@contextmanager
def _started(cpus: frozenset[int] | None, start: Callable[[Path], _Started]) -> Iterator[Broker]:
    with TemporaryDirectory(prefix="hbroker-bench-") as directory:
        with on_cpus(cpus):
            process, address = start(Path(directory))
        try:
            yield Broker(address, (process.pid, *descendants(process.pid)))
        finally:
            ended(process)


def _start(transport: Transport, workers: int, directory: Path) -> _Started:
    if transport == "hbroker":
        return _node(directory, workers)
    root = {"name": "root", "subtree": "", "workers": workers}
    gateway = {"name": "gateway", "listeners": [{"address": _ANY_PORT}]}
    return _up(directory, {"nodes": [root], "gateways": [gateway]}, "gateway")


def _node(directory: Path, workers: int) -> _Started:
    """One node that owns every topic."""
    flags = ["--name", "root", "--subtree", "", "--listen", _ANY_PORT, "--workers", str(workers)]
    with launch(directory, [*_HBROKER, "node", *flags]) as process:
        line = announcement(process)
        found = re.search(r"(\d+\.\d+\.\d+\.\d+):(\d+)", line)
        if not line.startswith("ready") or found is None:
            raise NoAnswer(f"the node did not become ready: {line}")
        return process, (found[1], int(found[2]))


def _up(directory: Path, topology: Topology, entrance: str) -> _Started:
    """A launcher and its network, whose clients come to the `root` or to the `gateway`."""
    nodes = [{**node, "listen": _ANY_PORT} for node in topology["nodes"]]
    file = directory / "bench.yaml"
    file.write_text(json.dumps({**topology, "nodes": nodes}))  # which is YAML, too
    flags = ["--json", "--no-telemetry", "--state-dir", str(directory / "state")]
    with launch(directory, [*_HBROKER, "up", *flags, str(file)]) as process:
        told = json.loads(announcement(process))
        if told["event"] != "ready":
            raise NoAnswer(f"the network did not become ready: {told}")
        if entrance == "root":
            return process, parse_address(told["root"])
        (url,) = told["gateways"][0]["listeners"]
        return process, parse_address(url.partition("://")[2])
