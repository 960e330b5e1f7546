"""The cost of finding a topic's owner, by its depth in the tree.

The tree is a chain of nodes. *Cold*: the client knows the root, and no zone. Its question is forwarded from
node to node, and the owner answers (docs/protocol.md §5.2). *Cached*: the client's core finds the zone in its
cache, as for every message, without a packet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from hbroker._native import LoadGenerator
from hbroker.bench.brokers import Broker
from hbroker.bench.chain import node_at, subtree_at
from hbroker.bench.controls import Controls
from hbroker.bench.measurement import Percentiles
from hbroker.bench.process import sharpen_sleep
from hbroker.bench.resource_totals import ResourceTotals
from hbroker.runtime.address import listen_for
from hbroker.runtime.client.dispatcher import config_of
from hbroker.runtime.client.identity import Identity

if TYPE_CHECKING:
    from hbroker._native import LoadClient

__all__ = ["DepthResult", "Resolved", "measure_look_ups"]

_PATIENCE_S: Final = 10.0
_TOPICS: Final = 1_000
_ROUNDS: Final = 200


@dataclass(frozen=True, slots=True)
class DepthResult:
    """The result for one depth. `packets_out`, `packets_in`: datagrams of the client for each cold look-up.
    `cached_ns`: for each look-up in the cache."""

    depth: int
    owner: str
    cold_us: Percentiles
    packets_out: float
    packets_in: float
    cached_ns: float
    cached_packets: int


@dataclass(frozen=True, slots=True)
class Resolved:
    """The result. Shares of a CPU: 1.0 is one whole CPU. `broker_cpu`: of all nodes together."""

    look_ups: int
    depths: Sequence[DepthResult]
    broker_cpu: float
    generator_cpu: float
    others_cpu: float

    @property
    def is_right(self) -> bool:
        """Whether the owner of each depth answered, and look-ups in the cache sent no packets."""
        return all(
            row.owner == node_at(row.depth) and row.cached_packets < _TOPICS * _ROUNDS / 1_000
            for row in self.depths
        )

    def to_json(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {"layout": "resolve", **asdict(self)}


def measure_look_ups(broker: Broker, depth: int, count: int) -> Resolved:
    """Looks up `count` topics at each depth of a chain with this depth. Raises NoAnswer."""
    sharpen_sleep()
    native = LoadGenerator(groups=[(1, None, None)], subscribers=[(0, 1)], payload=16, qos=0)
    identity = replace(Identity.of(f"bench-{os.getpid()}"), credentials=broker.credentials())
    controls = Controls(broker.address, _PATIENCE_S)
    try:
        member = native.add_client(config_of(identity), listen_for(broker.address))
        controls.add(member, identity)
        controls.find(_topic(0, 0))
        before = ResourceTotals.now(broker.pids)
        depths = [_at(level, member, controls, count) for level in range(depth + 1)]
        spent = before.until(ResourceTotals.now(broker.pids))
    finally:
        controls.close()
        native.shutdown()
    return Resolved(
        look_ups=count,
        depths=depths,
        broker_cpu=spent.broker_cpu,
        generator_cpu=spent.ours_cpu,
        others_cpu=spent.others_cpu,
    )


def _at(level: int, member: LoadClient, controls: Controls, count: int) -> DepthResult:
    before = _packets(member)
    times, owner = [], ""
    for number in range(count):
        member.forget_zones()
        began = time.perf_counter_ns()
        owner = controls.find(_topic(level, number)).owner
        times.append(time.perf_counter_ns() - began)
    cold = _packets(member)
    topics = [_topic(level, number) for number in range(_TOPICS)]
    cached = member.time_look_ups(topics, _ROUNDS) / (_TOPICS * _ROUNDS)
    return DepthResult(
        depth=level,
        owner=owner,
        cold_us=Percentiles.among(times),
        packets_out=(cold[0] - before[0]) / count,
        packets_in=(cold[1] - before[1]) / count,
        cached_ns=cached,
        cached_packets=sum(_packets(member)) - sum(cold),
    )


def _packets(member: LoadClient) -> tuple[int, int]:
    counters = member.counters()
    return counters["datagrams_out"], counters["datagrams_in"]


def _topic(level: int, number: int) -> str:
    return "/".join(filter(None, (subtree_at(level), f"topic-{number}")))
