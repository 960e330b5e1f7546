"""What happens to a network in one run: drawn whole from a seed before it begins, so that it can be read.

A plan is a hierarchy, the faults of all paths, and one list of actions in time: nodes that join late or
leave, clients that subscribe, publish and move about, partitions that heal, processes that are stopped and
go on, crash and begin anew. Nothing in it depends on how the network behaves, so an action may find that it
no longer applies; it is then passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from hbroker.config import LeasePolicy

from .actions import (
    Action,
    Continue,
    Crash,
    Heal,
    Join,
    Leave,
    Part,
    Publish,
    Restart,
    Roam,
    Stop,
    Subscribe,
    Unsubscribe,
    describe,
)
from .paths import ETHERNET, LARGEST, Faults

__all__ = ["ROOT", "SECOND", "NodePlan", "Plan", "draw"]

SECOND: Final = 1_000_000
MOST_NODES: Final = 30
ROOT: Final = "root"
MOST_DRIFT_PPM: Final = 45_000
"""Clocks may be wrong by one second in 20 (§5.6); a little less leaves time to be told."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node, the subtree that it claims, and by how much its clock is too fast."""

    name: str
    subtree: str
    policy: LeasePolicy = LeasePolicy.FENCE
    drift_ppm: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Times count from when the first nodes serve, in microseconds.

    `first`: the nodes that are there from the beginning, by their order. `bandwidth_bps`: of the one line
    that all datagrams share; None: it has no limit.
    """

    seed: int
    nodes: tuple[NodePlan, ...]
    first: tuple[str, ...]
    clients: tuple[str, ...]
    topics: tuple[str, ...]
    paths: Faults
    bandwidth_bps: int | None
    actions: tuple[Action, ...]

    @property
    def end(self) -> int:
        """When the last action has been taken."""
        return max((action.at for action in self.actions), default=0)

    def schedule(self) -> Iterator[str]:
        """The plan less its messages, a line for each fact."""
        yield f"paths: {self.paths}, {self.bandwidth_bps or 'any number of'} bit/s"
        for node in self.nodes:
            late = "" if node.name in self.first else ", joins late"
            clock = f", clock {node.drift_ppm:+} ppm" if node.drift_ppm else ""
            yield f"node {node.name}: {node.subtree or '(root)'}, {node.policy.value}{clock}{late}"
        messages = [action for action in self.actions if isinstance(action, Publish)]
        yield f"clients: {' '.join(self.clients)}; {len(messages)} messages to {len(self.topics)} topics"
        for action in self.actions:
            if not isinstance(action, Publish):
                yield f"{action.at / SECOND:10.6f} {describe(action)}"


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(seed)
    nodes = _draw_nodes(random)
    late = {n.name for n in nodes[1:] if random.random() < random.choice((0.0, 0.2, 0.5))}
    clients = tuple(f"p{n}" for n in range(random.choice((1, 1, 2, 2, 3, 4, 5))))
    clients += tuple(f"s{n}" for n in range(random.choice((1, 2, 2, 3, 3, 4, 5, 7))))
    owned = random.sample(nodes, min(len(nodes), 8))
    topics = tuple(sorted({f"{n.subtree or 'other'}/t{random.randint(0, 1)}" for n in owned}))
    length = random.randint(5, 45) * SECOND
    actions: list[Action] = [Join(random.randrange(length), name) for name in sorted(late)]
    actions += _draw_faults(random, nodes, clients, length)
    actions += _draw_subscriptions(random, clients, topics, length, _handovers(actions))
    actions += _draw_messages(random, clients, topics, length)
    return Plan(
        seed,
        tuple(nodes),
        tuple(n.name for n in nodes if n.name not in late),
        clients,
        topics,
        _draw_paths(random),
        random.choice((None, None, None, 2_000_000, 20_000_000)),
        tuple(sorted(actions, key=lambda action: action.at)),
    )


def _draw_nodes(random: Random) -> list[NodePlan]:
    """A root and a random hierarchy below it: few nodes are likelier than many.

    Only a node that goes on itself may delegate to one that does (§5.6).
    """
    subtrees = [""]
    for _ in range(int(MOST_NODES * random.random() ** 2)):
        above = random.choice([s for s in subtrees if s.count("/") < 3])
        subtree = f"{above}/{random.choice('abcdef')}".lstrip("/")
        if subtree not in subtrees:
            subtrees.append(subtree)
    serve = random.choice((0.0, 0.0, 0.5))
    lasting = {""}
    for subtree in subtrees[1:]:
        if subtree.rpartition("/")[0] in lasting and random.random() < serve:
            lasting.add(subtree)
    policies = [LeasePolicy.SERVE if s and s in lasting else LeasePolicy.FENCE for s in subtrees]
    names = [ROOT, *(f"n{number}" for number in range(1, len(subtrees)))]
    most = random.choice((0, 100, MOST_DRIFT_PPM))
    clocks = [random.randint(-most, most) for _ in subtrees]
    return [NodePlan(*node) for node in zip(names, subtrees, policies, clocks, strict=True)]


def _draw_paths(random: Random) -> Faults:
    return Faults(
        loss=random.choice((0.0, 0.01, 0.1, 0.3)),
        delay_us=random.choice((200, 5_000, 50_000)),
        jitter_us=random.choice((0, 1_000, 20_000)),
        reordering=random.choice((0.0, 0.05, 0.3)),
        duplication=random.choice((0.0, 0.05, 0.3)),
        corruption=random.choice((0.0, 0.0, 0.01)),
        mtu=random.choice((ETHERNET, LARGEST)),
    )


def _handovers(actions: list[Action]) -> list[int]:
    """When subtrees begin to move. What happens at the same time is what goes wrong."""
    return [action.at for action in actions if isinstance(action, Join | Leave | Restart)]


def _draw_subscriptions(
    random: Random, clients: tuple[str, ...], topics: tuple[str, ...], length: int, handovers: list[int]
) -> Iterator[Action]:
    """Each subscriber wants a topic, or what lies about one; half of them from the beginning."""
    for client in clients:
        for _ in range(random.randint(1, 3) if client.startswith("s") else 0):
            levels = random.choice(topics).split("/")
            shape = random.randrange(4)
            if shape == 0:
                levels[random.randrange(len(levels))] = "+"
            elif shape == 1:
                levels[random.randrange(len(levels)) :] = "#"
            at = 0 if random.random() < 0.5 else random.randrange(length)
            if handovers and random.random() < 0.25:
                at = random.choice(handovers) + random.randrange(SECOND // 2)
            yield Subscribe(at, client, "/".join(levels), random.randint(0, 2))
            if random.random() < 0.2:
                yield Unsubscribe(random.randrange(at, at + length), client, "/".join(levels))


def _draw_messages(
    random: Random, clients: tuple[str, ...], topics: tuple[str, ...], length: int
) -> Iterator[Action]:
    """A few of them are retained, most of these early, or clear what is; a few are large."""
    early, late = random.choice(((0.0, 0.0), (0.5, 0.0), (0.2, 0.02), (0.2, 0.2)))
    for client in clients:
        if client.startswith("p"):
            own = random.sample(topics, random.randint(1, len(topics)))
            for _ in range(random.randint(1, 300)):
                at, topic, qos = random.randrange(length), random.choice(own), random.choice((0, 1, 1, 2, 2))
                size = random.choice((20, 20, 200, 2_000)) if random.random() < 0.98 else 20_000
                retain = random.random() < (early if at < length // 10 else late)
                clears = retain and random.random() < 0.2
                yield Publish(at, client, topic, qos, 0 if clears else size, retain)


def _draw_faults(
    random: Random, nodes: list[NodePlan], clients: tuple[str, ...], length: int
) -> Iterator[Action]:
    """A partition heals, and a stopped process goes on; one that crashed or left may stay away.

    But not for good under `serve`: nobody would ever take its subtree back (§5.6).
    """
    hosts = [*(node.name for node in nodes), *clients]
    back = {ROOT, *(node.name for node in nodes if node.policy is LeasePolicy.SERVE)}
    for _ in range(random.randint(0, 8)):
        at = random.randrange(length)
        until = at + round(random.choice((0.1, 1.0, 5.0, 14.0, 18.0, 40.0)) * random.random() * SECOND) + 1
        host = random.choice(hosts)
        kind = random.randrange(5)
        if kind == 0:
            apart = frozenset(random.sample(hosts, random.randint(1, max(1, len(hosts) // 2))))
            yield from (Part(at, apart), Heal(until, apart))
        elif kind == 1:
            yield from (Stop(at, host), Continue(until, host))
        elif kind == 2:
            yield Crash(at, host)
            if host in back or random.random() < 0.7:
                yield Restart(until, host, remembers=random.random() < 0.9)
        elif kind == 3 and host not in (*back, *clients):
            yield Leave(at, host)
        elif kind == 4:
            yield Roam(at, random.choice(clients))
