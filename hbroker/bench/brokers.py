"""The brokers that are measured: running processes, or a broker that is started.

A started broker has CPUs of its own and free loopback ports, and ends with the measurement.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from hbroker.addresses import parse_address
from hbroker.bench.chain import Topology
from hbroker.bench.launching import NoAnswer, announcement, ended, launch, on_cpus
from hbroker.bench.process import descendants
from hbroker.runtime.credentials import credentials_at
from hbroker.runtime.launcher import run_directory
from hbroker.storage.disk import replace_file

if TYPE_CHECKING:
    from hbroker._native import Credentials
    from hbroker.bench.plan import Address, Transport

__all__ = [
    "Broker",
    "Started",
    "announced",
    "own_broker",
    "own_network",
    "pids_at",
    "running",
    "security_flags",
    "start_network",
    "start_node",
]

_HBROKER: Final = (sys.executable, "-m", "hbroker")
_ANY_PORT: Final = "127.0.0.1:0"
_STATE: Final = "state"
_TOKEN: Final = "operator.token"
_PREFIX: Final = "hbroker-bench-"

Started: TypeAlias = "tuple[subprocess.Popen[bytes], Address]"
"""The first process, and the address to which clients connect."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker. `pids`: its known processes. `nodes`: those of them that are nodes of a network, by name.
    `authority`: the file with the certificate of its authority; empty: its security is off, as far as is
    known. `token`: the file with the token of its clients; empty: it requires none, as far as is known."""

    address: Address
    pids: tuple[int, ...]
    nodes: Mapping[str, int] = field(default_factory=dict)
    authority: str = ""
    token: str = ""

    def credentials(self) -> Credentials | None:
        """With which its clients seal their datagrams; None: they do not."""
        return credentials_at(self.address, self.authority or None, self.token or None)


@contextmanager
def running(
    start: Callable[[Path], Started], directory: Path, cpus: frozenset[int] | None
) -> Iterator[Broker]:
    """Runs what `start` starts on these CPUs, as long as the context lasts. Raises NoAnswer."""
    with on_cpus(cpus):
        process, address = start(directory)
    try:
        authority, token = (next(directory.glob(f"**/{name}"), "") for name in ("authority.crt", _TOKEN))
        pids = (process.pid, *descendants(process.pid))
        yield Broker(address, pids, _nodes(directory), str(authority), str(token))
    finally:
        ended(process)


@contextmanager
def own_broker(
    transport: Transport, workers: int, cpus: frozenset[int] | None, *, is_sealed: bool = False
) -> Iterator[Broker]:
    """Runs hbroker's own broker on these CPUs, as long as the context lasts. Raises NoAnswer.

    It is a node, or, for MQTT, the smallest network with a gateway. `is_sealed`: its security is on.
    """
    root = {"name": "root", "subtree": "", "workers": workers}
    gateway = {"name": "gateway", "listeners": [{"address": _ANY_PORT}]}

    def start(directory: Path) -> Started:
        if transport == "hbroker":
            security = security_flags(directory) if is_sealed else ()
            return start_node(directory, "--workers", str(workers), *security)
        topology = {"nodes": [root], "gateways": [gateway], "security": is_sealed}
        return start_network(directory, topology, "gateway", "--no-telemetry")

    with TemporaryDirectory(prefix=_PREFIX) as directory, running(start, Path(directory), cpus) as broker:
        yield broker


@contextmanager
def own_network(
    topology: Topology, cpus: frozenset[int] | None, *, is_sealed: bool = False
) -> Iterator[Broker]:
    """Runs a network, whose address is its root's. Raises NoAnswer. `is_sealed`: its security is on."""

    def start(directory: Path) -> Started:
        return start_network(directory, {**topology, "security": is_sealed}, "root", "--no-telemetry")

    with TemporaryDirectory(prefix=_PREFIX) as directory, running(start, Path(directory), cpus) as broker:
        yield broker


def start_node(directory: Path, *flags: str) -> Started:
    """Starts one node that owns every topic. Raises NoAnswer."""
    fixed = ["--name", "root", "--subtree", "", "--listen", _ANY_PORT]
    with launch(directory, [*_HBROKER, "node", *fixed, *flags]) as process:
        return process, announced(process)


def start_network(
    directory: Path, topology: Topology, entrance: Literal["root", "gateway"], *flags: str
) -> Started:
    """Starts a launcher and its network, whose clients connect to the `root` or to the gateway. Raises
    NoAnswer."""
    nodes = [{**node, "listen": _ANY_PORT} for node in topology["nodes"]]
    file = directory / "bench.yaml"
    file.write_text(json.dumps({**topology, "nodes": nodes}))  # JSON is YAML, too
    fixed = ["--no-admin", "--json", "--state-dir", str(directory / _STATE)]
    with launch(directory, [*_HBROKER, "up", *fixed, *flags, str(file)]) as process:
        reported = json.loads(announcement(process))
        if reported["event"] != "ready":
            raise NoAnswer(f"the network did not become ready: {reported}")
        if entrance == "root":
            return process, parse_address(reported["root"])
        (url,) = reported["gateways"][0]["listeners"]
        return process, parse_address(url.partition("://")[2])


def announced(process: subprocess.Popen[bytes]) -> Address:
    """The address in the `ready` line of a node or a gateway. Raises NoAnswer for another line."""
    line = announcement(process)
    found = re.search(r"(\d+\.\d+\.\d+\.\d+):(\d+)", line)
    if not line.startswith("ready") or found is None:
        raise NoAnswer(f"it did not become ready: {line}")
    return found[1], int(found[2])


def pids_at(address: Address, networks: Sequence[run_directory.NetworkRun]) -> tuple[int, ...]:
    """The processes of the network of this host that has a node or a gateway at this port; (): there is
    none."""
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


def security_flags(directory: Path) -> tuple[str, ...]:
    """The flags of a root with a new authority and identity. Beside them is a token with all rights."""
    from hbroker.identity.authority import Authority
    from hbroker.rights.block import Block
    from hbroker.rights.token import create
    from hbroker.runtime.launcher.operator_token import OPERATOR_RIGHTS

    authority, folder = Authority.create("bench", time.time()), directory / "authority"
    authority.save(folder)
    authority.issue("root", [""], time.time()).save(directory)
    replace_file(directory / _TOKEN, [create(authority.key, Block(OPERATOR_RIGHTS)).encode("ascii")])
    return "--authority", str(folder / "authority.crt"), "--identity", str(directory)


def _is_here(host: str) -> bool:
    """Whether it is an address of this machine: other addresses cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def _nodes(directory: Path) -> dict[str, int]:
    found = [
        run for network in run_directory.running(directory / _STATE) if (run := network.read()) is not None
    ]
    return {node.name: node.pid for run in found for node in run.nodes if node.pid is not None}
