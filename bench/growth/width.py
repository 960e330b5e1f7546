"""The cost of a wide tree: a root and its children, in the simulated network.

All children begin to join at the same time, over clear paths of 0.2 ms without a bandwidth limit. So times
are round trips and timers of the protocol, not those of a machine or a line. Everything except the CPU time
is determined by the seed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from hbroker.config import NodeSettings
from hbroker.protocol.results import Resolved, Subscribed
from hbroker.sim.network.hosts import ClientHost, NodeHost
from hbroker.sim.network.world import Datagram, World

T = TypeVar("T")

_SECOND: Final = 1_000_000
_SETTLED: Final = 30 * _SECOND
"""By then a link has found its path's MTU, and sends only keep-alives."""
_WATCHED_S: Final = 60
_SUBSCRIBING: Final = frozenset({"challenge", "subscribe", "suback"})
_RESOLVING: Final = frozenset({"challenge", "pubconnect", "pubaccept", "referral"})


@dataclass(frozen=True, slots=True)
class Width:
    """The result for a root with this number of children.

    Times are simulated milliseconds, `cpu` is CPU time of the whole simulation, and datagrams are those that
    the root received and sent. `join`: from the start of the children until each serves its subtree and its
    own status. `lease`: datagrams a second while nothing else happens. `subscribe`: to `#`, until every node
    has it; of its datagrams only those with a SUBSCRIBE, its answer, or a CHALLENGE; `subscribe_all`: also
    those between the client and the children. `resolve`: a topic of one child, by a client that knows only
    the root; `resolve_all`: its datagrams on all paths; `hops`: the nodes that took part.
    """

    children: int
    join_ms: float
    join_cpu_s: float
    join_in: int
    join_out: int
    lease_in_per_s: float
    lease_out_per_s: float
    subscribe_ms: float
    subscribe_cpu_s: float
    subscribe_in: int
    subscribe_out: int
    subscribe_all: int
    resolve_ms: float
    resolve_all: int
    hops: int


@dataclass(slots=True)
class _Span:
    """The cost of one phase."""

    ms: float = 0.0
    cpu_s: float = 0.0
    root_in: int = 0
    root_out: int = 0
    all: int = 0


def measure_width(children: int, seed: int = 1) -> Width:
    """Measures one size."""
    tree = _Tree(children, seed)
    with tree.span() as join:
        tree.join()
    tree.world.run(_SETTLED)
    with tree.span() as lease:
        tree.world.run(_WATCHED_S * _SECOND)
    with tree.span(_SUBSCRIBING) as subscribe:
        tree.subscribe("#")
    tree.world.run(_SETTLED)
    topic = f"{_subtree(children // 2)}/state"
    with tree.span(_RESOLVING) as resolve:
        tree.resolve(topic)
    return Width(
        children,
        join.ms,
        join.cpu_s,
        join.root_in,
        join.root_out,
        lease.root_in / _WATCHED_S,
        lease.root_out / _WATCHED_S,
        subscribe.ms,
        subscribe.cpu_s,
        subscribe.root_in,
        subscribe.root_out,
        subscribe.all,
        resolve.ms,
        resolve.all,
        tree.hops(topic),
    )


class _Tree:
    def __init__(self, children: int, seed: int) -> None:
        self.world = World(seed)
        self._root = NodeHost(self.world, NodeSettings("root", "", self.world.new_address()))
        self._children = children

    @contextmanager
    def span(self, kinds: Container[str] | None = None) -> Iterator[_Span]:
        """Measures what happens within the block. `kinds`: counts only datagrams with such a packet."""
        found, counted = _Span(), Counter[str]()
        began, cpu = self.world.now, time.process_time()

        def watch(datagram: Datagram) -> None:
            if kinds is None or any(kind in kinds for kind in datagram.kinds()):
                counted["all"] += 1
                counted["in"] += datagram.destination == self._root.address
                counted["out"] += datagram.source == self._root.address

        self.world.on_datagram = watch
        yield found
        self.world.on_datagram = None
        found.cpu_s = time.process_time() - cpu
        found.ms = (self.world.now - began) / 1e3
        found.root_in, found.root_out, found.all = counted["in"], counted["out"], counted["all"]

    def join(self) -> None:
        """Returns when every child serves."""
        root = self._root.address
        waiting = [
            NodeHost(
                self.world,
                NodeSettings(f"node-{number}", _subtree(number), self.world.new_address(), root),
            )
            for number in range(self._children)
        ]

        def have_joined() -> bool:
            while waiting and waiting[-1].control.is_serving:
                waiting.pop()
            return not waiting

        self.world.run_until(have_joined)

    def subscribe(self, filter: str) -> None:
        """Returns when every owner has a new client's subscription."""
        client = self._client("subscriber")
        client.subscribe(filter, qos=1)
        self._result(client, Subscribed)

    def resolve(self, topic: str) -> None:
        """Returns when a new client knows the owner."""
        client = self._client("publisher")
        client.resolve(topic)
        self._result(client, Resolved)

    def hops(self, topic: str) -> int:
        """The number of nodes that a new client asks, from the root to the owner."""
        client = self._client("tracer")
        client.resolve(topic, trace=True)
        return len(self._result(client, Resolved).resolution.trace)

    def _client(self, name: str) -> ClientHost:
        return ClientHost(self.world, self._root.address, name)

    def _result(self, client: ClientHost, kind: type[T]) -> T:
        def found() -> list[T]:
            return [result for result in client.results if isinstance(result, kind)]

        self.world.run_until(lambda: bool(found()))
        return found()[0]


def _subtree(number: int) -> str:
    return f"site/{number}"
