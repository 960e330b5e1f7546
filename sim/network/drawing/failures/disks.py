"""Disks that sync late, are full, fail, or lose power, and nodes that die just after a promise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from hbroker.config import LeasePolicy
from hbroker.protocol import timers

from ...actions import (
    Action,
    Crash,
    Exhaust,
    FailDisk,
    FailSync,
    Falter,
    FillDisk,
    FlipBit,
    Join,
    LosePower,
    MendDisk,
    Move,
    Restart,
    Subscribe,
    Succeed,
)
from ...paths import Faults
from ...plan import SECOND, NodePlan
from ..nodes.successions import FAULTS, meanwhile

__all__ = ["draw_disks", "draw_store_faults", "draw_stores"]

PROMISING = (Join, Move, Subscribe)
"""After these actions a node makes a promise that relies on its files."""


def draw_disks(
    random: Random,
    nodes: list[NodePlan],
    clients: tuple[str, ...],
    topics: tuple[str, ...],
    paths: Faults,
    actions: list[Action],
) -> tuple[list[NodePlan], Faults, list[Action]]:
    """Returns the nodes, each with its disk, the paths, and the actions, with the faults of disks.

    Five of ten plans have no fault of a disk. In three of the other five a node falters, and nothing else
    fails.
    """
    nodes = [replace(node, sync_us=random.choice((500, 5_000, 50_000, 300_000))) for node in nodes]
    kind = random.randrange(10)
    if kind < 5:
        return nodes, paths, actions
    if kind == 5:
        return nodes, paths, [*actions, *_deaths_on_full_disks(random, nodes, actions)]
    if kind == 6:
        return nodes, paths, [*actions, *_faults(random, nodes, actions)]
    paths = Faults(loss=min(paths.loss, 0.01), delay_us=paths.delay_us)
    actions = [action for action in actions if not isinstance(action, (*FAULTS, Succeed))]
    return nodes, paths, [*actions, *_falters(random, nodes, clients, topics, actions)]


def _faults(random: Random, nodes: list[NodePlan], actions: list[Action]) -> Iterator[Action]:
    """Disks that fail for a while, and machines that lose power, some of them for good.

    Not for good under `serve`: no node would ever take such a subtree back (§5.6).
    """
    for _ in range(random.randint(1, 5)):
        at, node = _moment(random, actions), random.choice(nodes)
        until = at + round(random.choice((0.5, 5.0, 25.0)) * random.random() * SECOND) + 1
        kind = random.randrange(3)
        if kind == 0:
            yield FillDisk(at, node.name, random.choice((0, 10, 200, 3_000)))
            yield MendDisk(until, node.name)
        elif kind == 1:
            yield FailDisk(at, node.name)
            yield MendDisk(until, node.name)
        else:
            yield LosePower(at, node.name)
            if not node.subtree or node.policy is LeasePolicy.SERVE or random.random() < 0.8:
                yield Restart(until, node.name)


def draw_stores(random: Random, nodes: list[NodePlan]) -> list[NodePlan]:
    """Returns the nodes, and which of them keep messages on disk: usually all, at times some or none."""
    share = random.choice((0.0, 0.5, 1.0, 1.0, 1.0))
    return [replace(node, has_store=random.random() < share) for node in nodes]


def draw_store_faults(random: Random, nodes: list[NodePlan], actions: list[Action]) -> Iterator[Action]:
    """Stores whose syncs fail, or in which a bit changes. The node starts again.

    In a third of the plans in which processes die, unless nothing else may fail.
    """
    stored = [node for node in nodes if node.has_store]
    may_fail = any(isinstance(action, Crash | LosePower) for action in actions)
    may_fail &= not any(isinstance(action, Exhaust | Falter | Succeed) for action in actions)
    if not (stored and may_fail) or random.random() >= 1 / 3:
        return
    for _ in range(random.randint(1, 3)):
        node, at = random.choice(stored).name, _moment(random, actions)
        until = at + random.randrange(SECOND // 10, 3 * SECOND)
        yield FailSync(at, node) if random.random() < 0.6 else FlipBit(at, node)
        yield MendDisk(until, node)
        yield Restart(until + 1, node)


def _deaths_on_full_disks(random: Random, nodes: list[NodePlan], actions: list[Action]) -> Iterator[Action]:
    """A disk has no room for what a node notes, or only for a part of it, and the node dies before there is
    room."""
    for _ in range(random.randint(1, 3)):
        node, full = random.choice((nodes[0], random.choice(nodes))).name, _moment(random, actions)
        dies = full + random.randrange(2 * SECOND)
        yield FillDisk(max(0, full - SECOND), node, random.choice((0, 10, 50, 200)))
        yield LosePower(dies, node) if random.random() < 0.5 else Crash(dies, node)
        mended = dies + random.randrange(SECOND)
        yield MendDisk(mended, node)
        yield Restart(mended + random.randrange(1, SECOND), node)


def _falters(
    random: Random,
    nodes: list[NodePlan],
    clients: tuple[str, ...],
    topics: tuple[str, ...],
    actions: list[Action],
) -> Iterator[Action]:
    """One node dies and comes back, while messages to its topics are published.

    At times its disk has been full for longer than the idle timeout of a session.
    """
    node, at = random.choice(nodes), _moment(random, actions)
    with_machine = random.random() < 0.5
    publishers, subscribers = ([client for client in clients if client.startswith(kind)] for kind in "ps")
    if random.random() < 0.3:
        node = random.choice([some for some in nodes if _topics_of(some, topics)])
        with_machine, full_at = False, at
        at += random.randrange(timers.IDLE_TIMEOUT, 2 * timers.IDLE_TIMEOUT)
        yield Exhaust(full_at, node.name, random.choice((0, 10, 200)))
        # There must be a note that it cannot write.
        filter = f"{random.choice(_topics_of(node, topics))}/unused"
        yield Subscribe(full_at + SECOND, random.choice(subscribers), filter, 1)
        yield MendDisk(at + random.randrange(1, 3 * SECOND), node.name)
    yield Falter(at, node.name, with_machine)
    yield Restart(at + random.randrange(SECOND // 10, 3 * SECOND), node.name)
    yield from meanwhile(random, at, publishers, _topics_of(node, topics))


def _topics_of(node: NodePlan, topics: tuple[str, ...]) -> list[str]:
    return [topic for topic in topics if topic.startswith(f"{node.subtree}/") or not node.subtree]


def _moment(random: Random, actions: list[Action]) -> int:
    """A random time, mostly just after an action for which a node makes a promise."""
    promising = [action.at for action in actions if isinstance(action, PROMISING)]
    start = random.choice(promising) if promising and random.random() < 0.8 else 0
    return start + random.randrange(SECOND // 2 if start else 20 * SECOND)
