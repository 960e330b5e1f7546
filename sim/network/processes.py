"""The processes of one run by name, and which of them are cut off from each other.

A node or client keeps its name over its restarts. A node also keeps its address, its clock, and its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from hbroker.config import Durability, NodeSettings
from hbroker.protocol.sessions.options import SessionOptions, session_id

from .hosts import ClientHost, Host, NodeHost
from .impostors import ImpostorHost
from .paths import CLEAR, Faults
from .plan import ROOT, Plan
from .storage.files import NodeFiles
from .world import Address, Datagram, World

__all__ = ["Processes"]

_AnyHost = TypeVar("_AnyHost", bound=Host)


class Processes:
    """Every process that was started, and the paths between those that run."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._settings: dict[str, NodeSettings] = {}
        self._names: dict[Address, str] = {}
        self.hosts: dict[str, Host] = {}
        """By name, the latest process, running or not."""
        self.left: set[str] = set()
        """Nodes that have handed their subtrees back, or are about to."""
        self.paths: Faults = CLEAR
        self.apart: list[frozenset[str]] = []
        """Groups of hosts, each cut off from all others."""
        self._impostors: list[ImpostorHost] = []
        for node in plan.nodes:
            address = world.new_address()
            root = None if node.name == ROOT else self._settings[ROOT].listen
            self._settings[node.name] = NodeSettings(
                node.name,
                node.subtree,
                address,
                root,
                policy=node.policy,
                join_key=plan.join_key,
                durability=Durability.FSYNC if node.has_store else Durability.NONE,
            )

    # Change

    def start_node(self, name: str) -> NodeHost:
        """Starts a node's first process."""
        (plan,) = (node for node in self._plan.nodes if node.name == name)
        settings = self._settings[name]
        host = NodeHost(
            self._world,
            settings,
            NodeFiles(self._world, settings, plan.sync_us),
            drift_ppm=plan.drift_ppm,
            queue_messages=self._plan.queue_messages,
        )
        return self._enter(name, host)

    def start_client(self, name: str, *, begins_clean: bool = False) -> ClientHost:
        """Starts a client. It resumes its session if that is persistent, unless `begins_clean`."""
        session_options = SessionOptions(name)
        if expiry := self._plan.expiries.get(name):
            session_options = SessionOptions(name, session_id(name), expiry, clean_start=begins_clean)
        host = ClientHost(
            self._world,
            self._settings[ROOT].listen,
            name,
            session_options,
            credit=self._plan.credits.get(name),
            for_many=name in self._plan.for_many,
            pace=self._plan.paces.get(name),
        )
        return self._enter(name, host)

    def start_impostor(self, victim: ClientHost) -> ImpostorHost:
        """Starts a process that publishes under the id of a client's run. It runs until `heal`."""
        impostor = ImpostorHost(self._world, self._settings[ROOT].listen, victim.publisher)
        self._names[impostor.address] = f"impostor of {self.name(victim.address)}"
        self._impostors.append(impostor)
        return impostor

    def restart_node(self, name: str, *, remembers: bool, clock_step_us: int = 0) -> NodeHost:
        """Starts a node again that died. `clock_step_us`: by how much its wall clock was set in the
        meantime."""
        before = self.hosts[name]
        assert isinstance(before, NodeHost)
        return self._enter(name, before.restart(remembers=remembers, clock_step_us=clock_step_us))

    def kill(self, name: str, *, with_machine: bool = False) -> None:
        """Ends a process as by SIGKILL. `with_machine`: its machine loses power."""
        host = self.hosts[name]
        if isinstance(host, NodeHost):
            host.kill(with_machine=with_machine)
        else:
            self._world.remove(host)

    def roam(self, client: ClientHost) -> None:
        """Gives a client another address."""
        name = self.name(client.address)
        self._world.move(client)
        self._names[client.address] = name

    def heal(self) -> None:
        """Clears all paths, mends all disks, lets every process run and read, and ends the impostors."""
        self.paths, self.apart = CLEAR, []
        for impostor in self._impostors:
            impostor.kill()
        for name, host in list(self.hosts.items()):
            if isinstance(host, NodeHost):
                host.files.mend()
            if not self.is_alive(name):
                continue
            if isinstance(host, ClientHost) and host.pace is not None:
                host.pace = None
                if not host.is_stopped:
                    self._world.drive(host)
            if host.is_stopped:
                host.resume()

    # Read

    def is_alive(self, name: str) -> bool:
        """Whether a process of this name exists. It may be stopped."""
        host = self.hosts.get(name)
        return host is not None and self._world.hosts.get(host.address) is host

    def node(self, name: str) -> NodeHost | None:
        """The node of this name, if it runs and is not stopped."""
        host = self._running(name)
        return host if isinstance(host, NodeHost) else None

    def client(self, name: str) -> ClientHost | None:
        """The client of this name, if it runs and is not stopped."""
        host = self._running(name)
        return host if isinstance(host, ClientHost) else None

    @property
    def nodes(self) -> Iterator[NodeHost]:
        """The nodes that run, and are not to leave."""
        running = (self.node(name) for name in self.hosts if name not in self.left)
        return (node for node in running if node is not None)

    def holder(self, subtree: str) -> NodeHost | None:
        """The node that holds exactly this subtree; None: no node does."""
        for name, host in self.hosts.items():
            if isinstance(host, NodeHost) and self.is_alive(name) and host.is_serving_subtree(subtree):
                return host
        return None

    def name(self, address: Address) -> str:
        """The name of the host that has, or had, an address."""
        return self._names.get(address, f"{address[0]}:{address[1]}")

    def path(self, datagram: Datagram) -> Faults | None:
        """The faults of a datagram's path; None: its ends are cut off from each other."""
        ends = {self.name(datagram.source), self.name(datagram.destination)}
        is_cut = any(len(ends & apart) == 1 for apart in self.apart)
        return None if is_cut else self.paths

    def _enter(self, name: str, host: _AnyHost) -> _AnyHost:
        self._names[host.address] = name
        self.hosts[name] = host
        return host

    def _running(self, name: str) -> Host | None:
        return self.hosts[name] if self.is_alive(name) and not self.hosts[name].is_stopped else None
