"""What happens to a network in one run: whole before it begins, so that it can be read (`drawing`).

A plan is a hierarchy, the faults of all paths, and one list of actions in time: nodes that join late or
leave, subtrees that are moved, clients that subscribe, publish and move about, partitions that heal,
processes that are stopped and go on, crash and begin anew. Nothing in it depends on how the network behaves,
so an action may find that it no longer applies; it is then passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hbroker.config import LeasePolicy

from .actions import Action, Publish, describe
from .paths import Faults

__all__ = ["ROOT", "SECOND", "NodePlan", "Pace", "Plan"]

SECOND: Final = 1_000_000
ROOT: Final = "root"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node, the subtree that it claims, by how much its clock is too fast, and how long after it noted
    something that is on its disk, about."""

    name: str
    subtree: str
    policy: LeasePolicy = LeasePolicy.FENCE
    drift_ppm: int = 0
    sync_us: int = 0


@dataclass(frozen=True, slots=True)
class Pace:
    """How a slow subscriber reads: so many messages at once, and no more for so many microseconds."""

    messages: int
    every_us: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Times count from when the first nodes serve, in microseconds.

    `expiries`: of the sessions that are kept, how long each lives without a link, in seconds, by its client.
    `credits`: how many messages a client takes from an owner without an answer, where that is not the usual.
    `for_many`: the clients that publish for many, as a gateway does.
    `first`: the nodes that are there from the beginning, by their order. `bandwidth_bps`: of the one line
    that all datagrams share; None: it has no limit. `join_key`: the network's; empty: it has none.
    `paces`: of the clients that read slowly. `queue_messages`: how many messages may wait for a session that
    asks for nothing else; 0: as many as usual.
    """

    seed: int
    nodes: tuple[NodePlan, ...]
    first: tuple[str, ...]
    clients: tuple[str, ...]
    expiries: Mapping[str, int]
    topics: tuple[str, ...]
    paths: Faults
    bandwidth_bps: int | None
    actions: tuple[Action, ...]
    credits: Mapping[str, int] = field(default_factory=dict)
    join_key: bytes = b""
    paces: Mapping[str, Pace] = field(default_factory=dict)
    queue_messages: int = 0
    for_many: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """When the last action has been taken."""
        return max((action.at for action in self.actions), default=0)

    def schedule(self) -> Iterator[str]:
        """The plan less its messages, a line for each fact."""
        yield f"paths: {self.paths}, {self.bandwidth_bps or 'any number of'} bit/s"
        yield f"{'a' if self.join_key else 'no'} join key"
        for node in self.nodes:
            late = "" if node.name in self.first else ", joins late"
            clock = f", clock {node.drift_ppm:+} ppm" if node.drift_ppm else ""
            disk = f", syncs after {node.sync_us} us" if node.sync_us else ""
            yield f"node {node.name}: {node.subtree or '(root)'}, {node.policy.value}{clock}{disk}{late}"
        messages = [action for action in self.actions if isinstance(action, Publish)]
        mortal = sum(message.expiry is not None for message in messages)
        yield f"clients: {' '.join(self.clients)}"
        yield f"{len(messages)} messages to {len(self.topics)} topics, of which {mortal} expire"
        for client, expiry in self.expiries.items():
            yield f"client {client}: its session is kept for {expiry} s"
        for client, credit in self.credits.items():
            yield f"client {client}: takes {credit} messages without an answer"
        for client in self.for_many:
            yield f"client {client}: publishes for many"
        for client, pace in self.paces.items():
            yield f"client {client}: reads {pace.messages} messages each {pace.every_us} us"
        if self.queue_messages:
            yield f"{self.queue_messages} messages may wait for a session"
        for action in self.actions:
            if not isinstance(action, Publish):
                yield f"{action.at / SECOND:10.6f} {describe(action)}"
