"""The plan of one run. It is complete before the run begins, so that it can be read (`drawing` makes it).

A plan has a hierarchy, the faults of all paths, and one list of actions in time: nodes that join late or
leave, subtrees that move, clients that subscribe, publish and roam, partitions that heal, processes that stop
and continue, crash and restart. Nothing in it depends on the network's behaviour. So an action may not apply
any more when it is due; then it is skipped.
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
    """A node.

    `subtree`: that it claims. `drift_ppm`: by how much its clock is too fast. `sync_us`: about how long it
    takes until a note is on its disk. `has_store`: whether it keeps messages on disk.
    """

    name: str
    subtree: str
    policy: LeasePolicy = LeasePolicy.FENCE
    drift_ppm: int = 0
    sync_us: int = 0
    has_store: bool = False


@dataclass(frozen=True, slots=True)
class Pace:
    """How a slow subscriber reads: `messages` at once, every `every_us` microseconds."""

    messages: int
    every_us: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Times are microseconds since the first nodes serve.

    `expiries`: of persistent sessions, by client, in seconds. `credits`: by client, its credit in messages,
    if it is not the default. `for_many`: the clients that publish for many, as a gateway does. `first`: the
    nodes that exist from the beginning, in order. `bandwidth_bps`: of the one line that all datagrams share;
    None: no limit. `join_key`: of the network; empty: none. `paces`: of the clients that read slowly.
    `queue_messages`: the default bound of a session's queue; 0: the usual one. `is_sealed`: all datagrams are
    sealed. `requires_tokens`: clients show tokens.
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
    is_sealed: bool = False
    requires_tokens: bool = False

    @property
    def end(self) -> int:
        """The time of the last action."""
        return max((action.at for action in self.actions), default=0)

    def schedule(self) -> Iterator[str]:
        """The plan without its messages, a line for each fact."""
        yield f"paths: {self.paths}, {self.bandwidth_bps or 'any number of'} bit/s"
        yield f"{'a' if self.join_key else 'no'} join key; datagrams {'' if self.is_sealed else 'not '}sealed"
        if self.requires_tokens:
            yield "each client has a token"
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
