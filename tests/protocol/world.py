"""A network of nodes and clients, with the few verbs in which transcripts and property tests are written."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import TypeAlias

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy, Limits, NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.context import Certificates
from hbroker.protocol.core import Event
from hbroker.protocol.events import NodeEvent
from hbroker.protocol.node import Node
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.packets import REQUEST_PADDING, Address, Body, address_from, body_of, pack
from hbroker.protocol.storage import RestoredState, Storage
from tests.protocol.fake_network import Faults, Network
from tests.protocol.fakes import FakeCore
from tests.protocol.native import NativeCore, NativeNetwork

AnyCore: TypeAlias = FakeCore | NativeCore
AnyNetwork: TypeAlias = Network | NativeNetwork

ROOT: Address = ("10.0.0.1", 7700)
DEFAULT_LIMITS = Limits()


@dataclass(slots=True)
class Running:
    """A node process."""

    settings: NodeSettings
    core: AnyCore
    node: Node


@dataclass(slots=True)
class Client:
    """A host that records what it receives, and proves its address when it is asked to (§4.1)."""

    core: AnyCore
    heard: list[tuple[Address, int | None, Body]] = field(default_factory=list)
    tokens: dict[Address, bytes] = field(default_factory=dict)
    asked: dict[Address, bytes] = field(default_factory=dict)

    def ask(self, to: Address, packet: bytes) -> None:
        self.asked[to] = packet
        self.core.send_to(to, packet, self.tokens.get(to, b""), REQUEST_PADDING)

    def handle_event(self, now: int, event: Event) -> None:
        if not isinstance(event, ControlEvent):
            return
        body = body_of(event.packet)
        assert body is not None
        if isinstance(body, pb.Challenge):
            self.tokens[event.source] = body.token
            self.ask(event.source, self.asked[event.source])
        else:
            self.heard.append((event.source, event.link, body))

    def handle_timeout(self, now: int) -> None:
        pass

    def poll_timeout(self) -> int | None:
        return None

    def answers(self, request: int) -> list[Body]:
        return [body for _, _, body in self.heard if getattr(body, "request", None) == request]


class _Notes(Storage):
    """The delegations that a node noted last, by subtree."""

    def __init__(self, delegations: dict[str, Delegation]) -> None:
        self._delegations = delegations

    def save_delegation(self, delegation: Delegation, ended: bool) -> None:
        if ended:
            self._delegations.pop(delegation.subtree, None)
        else:
            self._delegations[delegation.subtree] = replace(delegation)


class World:
    """Starts and kills nodes, and sends requests. Time passes only in `advance` and in the verbs that wait
    for answers."""

    def __init__(
        self, seed: int = 0, faults: Faults | None = None, network: type[AnyNetwork] = Network
    ) -> None:
        self.network: AnyNetwork = network(seed, faults)
        self.nodes: dict[str, Running] = {}
        self.clients: dict[str, Client] = {}
        self.certificates: Certificates | None = None
        """What nodes that start from now on know of their peers' certificates."""
        self._remembered: dict[str, dict[str, Delegation]] = {}
        self._hosts = count(2)
        self._requests = count(1)
        self._random = Random(seed)

    def start_root(
        self, name: str = "root", join_key: bytes = b"", limits: Limits = DEFAULT_LIMITS
    ) -> Running:
        return self._start(NodeSettings(name, "", ROOT, join_key=join_key, limits=limits))

    def start_node(
        self,
        name: str,
        subtree: str,
        policy: LeasePolicy = LeasePolicy.FENCE,
        join_key: bytes = b"",
    ) -> Running:
        listen = (f"10.0.1.{next(self._hosts)}", 7700)
        return self._start(NodeSettings(name, subtree, listen, ROOT, policy=policy, join_key=join_key))

    def restart(self, name: str) -> Running:
        """Starts the same node in a new process, which remembers its delegations."""
        before = self.nodes[name]
        if before.core.alive:
            self.kill(name)
        running = self._start(before.settings)
        self.network.restarted(before.settings.listen)
        return running

    def kill(self, name: str) -> None:
        self.network.kill(self.nodes[name].settings.listen)

    def leave(self, name: str) -> None:
        self.nodes[name].node.leave(self.network.now)

    def advance(self, seconds: float) -> None:
        self.network.run(round(seconds * timers.SECOND))

    def events(self, name: str) -> list[NodeEvent]:
        node = self.nodes[name].node
        return list(iter(node.poll_event, None))

    def name_at(self, address: Address | None) -> str:
        names = [n for n, running in self.nodes.items() if running.settings.listen == address]
        return names[0] if names else str(address)

    # Clients

    def client(self, name: str, *, is_node: bool = False) -> Client:
        """Returns the client of this name. With `is_node` its core accepts the calls of a node."""
        if name not in self.clients:
            core = self.network.attach((f"10.0.2.{next(self._hosts)}", 5000), is_node=is_node)
            core.control = self.clients[name] = Client(core)
        return self.clients[name]

    def ask(self, name: str, body: pb.PubConnect | pb.Subscribe | pb.Join, to: str = "root") -> list[Body]:
        """Sends one request outside of a session. Returns every answer that arrived within half a second."""
        body.request = next(self._requests)
        client = self.client(name)
        client.ask(self.nodes[to].settings.listen, pack(body))
        self.advance(0.5)
        return client.answers(body.request)

    def tell(
        self, name: str, to: Address, body: pb.Subscribe | pb.Unsubscribe | pb.Leave | pb.Join
    ) -> list[Body]:
        """Sends one request within a session. Returns the answers as `ask` does."""
        body.request = next(self._requests)
        client = self.client(name)
        client.core.send(client.core.connect(to), pack(body))
        self.advance(0.5)
        return client.answers(body.request)

    def subscribe(self, name: str, filter: str, qos: int = 0) -> list[pb.SubAck]:
        """Discovers, and then makes a subscription with every responsible node (§6)."""
        asked = self.ask(name, pb.Subscribe(filter=filter))
        found = [ack for ack in asked if isinstance(ack, pb.SubAck)]
        for ack in {ack.node: ack for ack in found if ack.responsible}.values():
            address = address_from(ack.address)
            assert address is not None
            self.tell(name, address, pb.Subscribe(filter=filter, qos=pb.Qos.Name(qos)))
        return found

    # Invariants

    def owners(self, topic: str) -> list[str]:
        """The nodes that would accept a PUBLISH to a topic now."""
        return [name for name, running in self.nodes.items() if running.core.serves(topic)]

    def storing(self, filter: str) -> list[str]:
        return sorted(n for n, r in self.nodes.items() if r.core.alive and r.core.stores(filter))

    def _start(self, settings: NodeSettings) -> Running:
        core = self.network.attach(settings.listen)
        name = settings.name
        remembered = self._remembered.setdefault(name, {})

        node = Node(
            settings,
            core,
            Random(self._random.getrandbits(64)),
            incarnation=core.incarnation,
            unix_offset_us=self.network.unix_offset_us,
            restored=RestoredState([replace(cut) for cut in remembered.values()]),
            storage=_Notes(remembered),
            certificates=self.certificates,
        )
        core.control = node
        running = self.nodes[settings.name] = Running(settings, core, node)
        node.start(self.network.now)
        return running
