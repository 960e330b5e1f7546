"""Networks for tests: a tree of nodes in a simulated world, and the datagrams in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy, NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.events import Joined
from hbroker.protocol.results import Published
from hbroker.protocol.sessions.options import SessionOptions, session_id
from hbroker.sim.network import ClientHost, Datagram, Faults, NodeHost, World, operators
from hbroker.sim.network.paths import CLEAR
from hbroker.sim.network.security import SimulatedSecurity
from hbroker.subtree import is_within

HOME = ("home/kitchen", "home/livingroom", "home/bedroom", "home/outside", "home/outside/securitycams")
BAD = Faults(
    loss=0.2,
    delay_us=30_000,
    jitter_us=40_000,
    reordering=0.05,
    late_us=50_000,
    duplication=0.05,
    corruption=0.02,
)
"""A path that loses 20 % of the packets, delays them by 50 ms ± 20 ms, and has every other kind of fault."""


@dataclass
class Tree:
    """A root, the nodes below it by subtree, and the datagrams with a PUBLISH that left any host."""

    world: World
    root: NodeHost
    nodes: dict[str, NodeHost] = field(default_factory=dict)
    published: list[Datagram] = field(default_factory=list)

    @classmethod
    def grow(
        cls,
        seed: int,
        subtrees: Iterable[str] = (),
        faults: Faults = CLEAR,
        security: SimulatedSecurity | None = None,
    ) -> Tree:
        """Starts a root and a node for each subtree, and waits until all serve."""
        world = World(seed, faults, security)
        root = NodeHost(world, NodeSettings("root", "", world.new_address()))
        tree = cls(world, root)
        world.on_datagram = tree._watch
        for subtree in subtrees:
            tree.join(subtree)
        return tree

    def join(
        self, subtree: str, *, name: str = "", wait: bool = True, policy: LeasePolicy = LeasePolicy.FENCE
    ) -> NodeHost:
        """Starts a node for a subtree. Without a name the node is named for the last level of the subtree."""
        name = name or subtree.rsplit("/", 1)[-1]
        settings = NodeSettings(
            name, subtree, self.world.new_address(), root=self.root.address, policy=policy
        )
        node = self.nodes[subtree] = NodeHost(self.world, settings)
        if wait:
            self.world.run_until(lambda: self.serves(node))
        return node

    def leave(self, node: NodeHost) -> None:
        """Orders a node to leave, waits until it has left, and ends its process."""
        self.order(node, pb.ORDER_KIND_LEAVE)
        self.world.run_until(lambda: node.control.has_stopped)
        node.kill()

    def move(self, subtree: str, holder: NodeHost, target: NodeHost) -> None:
        """Does what `hbroker move` does: the holder hands the subtree back, and the target claims it."""
        self._send(operators.move(subtree, holder, target))

    def order(self, node: NodeHost, kind: pb.OrderKind, subtree: str = "", *, wait: bool = True) -> None:
        """Sends an order, and waits until it is carried out unless `wait` is false."""
        self._send([operators.Step(node, kind, subtree)], wait=wait)

    def client(self, name: str = "", session_options: SessionOptions | None = None) -> ClientHost:
        """A client that knows the root."""
        return ClientHost(self.world, self.root.address, name, session_options)

    def watch_for(self, is_it: Callable[[pb.Transfer], bool]) -> list[pb.Transfer]:
        """The TRANSFER packets that leave any host from now on and for which `is_it` is true."""
        seen: list[pb.Transfer] = []

        def watch(datagram: Datagram) -> None:
            self._watch(datagram)
            seen.extend(p.transfer for p in datagram.decode().packets if is_it(p.transfer))

        self.world.on_datagram = watch
        return seen

    def serves(self, node: NodeHost) -> bool:
        """Whether a node serves both its subtree and its own part of `$SYS`."""
        served = {node_event.subtree for node_event in node.events if isinstance(node_event, Joined)}
        return {node.settings.subtree, f"$SYS/nodes/{node.settings.name}"} <= served

    def owner(self, topic: str) -> NodeHost:
        """The owner of a topic in the tree as it was grown."""
        above = [subtree for subtree in self.nodes if is_within(topic, subtree)]
        return self.nodes[max(above, key=len)] if above else self.root

    def brokers(self) -> set[tuple[str, int]]:
        """The addresses of all nodes."""
        return {self.root.address, *(node.address for node in self.nodes.values())}

    def between_brokers(self) -> list[Datagram]:
        """The datagrams with a PUBLISH from one node to another."""
        brokers = self.brokers()
        return [d for d in self.published if d.source in brokers and d.destination in brokers]

    def _send(self, steps: list[operators.Step], *, wait: bool = True) -> None:
        operator = operators.Operator(self.world, steps)
        if not wait:
            return
        self.world.run_until(lambda: operator.has_ended)
        answer = operator.answer
        assert answer is not None
        assert answer.done, answer

    def _watch(self, datagram: Datagram) -> None:
        if "publish" in datagram.kinds():
            self.published.append(datagram)


class AbsentSubscriber:
    """A client with a persistent session, which subscribes once and then only comes to read; and a publisher.

    Each message of the topic has to reach it once."""

    def __init__(self, tree: Tree, topic: str) -> None:
        self.tree, self.topic = tree, topic
        self._session_options = SessionOptions("lamp", session_id("lamp"), expiry_s=600)
        self._publisher = tree.client("publisher")
        self._published = 0
        self.read()

    def publish(self, count: int = 1) -> None:
        """Publishes the next messages, numbered from 1, and waits until all are acknowledged."""
        for _ in range(count):
            self._published += 1
            self._publisher.publish(self.topic, str(self._published).encode(), qos=1)
        self.tree.world.run_until(lambda: self._acknowledged == self._published)

    def read(self) -> list[int]:
        """Comes, reads what waits, and goes. Returns the numbers of these messages."""
        client = self.tree.client("lamp", self._session_options)
        client.subscribe(self.topic, qos=1)
        self.tree.world.run(10 * timers.SECOND)
        client.leave()
        self.tree.world.run(timers.SECOND)
        client.kill()
        return [int(message.payload) for message in client.messages]

    @property
    def _acknowledged(self) -> int:
        results = self._publisher.results
        return sum(isinstance(result, Published) and result.reason < 0x80 for result in results)
