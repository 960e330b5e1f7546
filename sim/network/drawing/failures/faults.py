"""Faults: of the paths all the time, and of hosts at times."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hbroker.config import LeasePolicy

from ...actions import Action, Continue, Crash, Heal, Leave, Part, Restart, Roam, Stop, Suspend, Wake
from ...paths import ETHERNET, LARGEST, Faults
from ...plan import ROOT, SECOND, NodePlan

__all__ = ["draw_faults", "draw_paths", "draw_suspensions"]


def draw_paths(random: Random) -> Faults:
    return Faults(
        loss=random.choice((0.0, 0.01, 0.1, 0.3)),
        delay_us=random.choice((200, 5_000, 50_000)),
        jitter_us=random.choice((0, 1_000, 20_000)),
        reordering=random.choice((0.0, 0.05, 0.3)),
        duplication=random.choice((0.0, 0.05, 0.3)),
        corruption=random.choice((0.0, 0.0, 0.01)),
        mtu=random.choice((ETHERNET, LARGEST)),
    )


def draw_faults(
    random: Random, nodes: list[NodePlan], clients: tuple[str, ...], length: int
) -> Iterator[Action]:
    """Partitions that heal, and stopped processes that continue. One that crashed or left may stay away.

    Not for good under `serve`: no node would ever take such a subtree back (§5.6).
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


def draw_suspensions(random: Random, nodes: list[NodePlan], length: int) -> Iterator[Action]:
    """Suspensions of a node's machine, mostly for longer than a lease."""
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        at, host = random.randrange(length), random.choice(nodes).name
        yield Suspend(at, host)
        yield Wake(at + random.choice((2, 18, 21, 25, 60)) * SECOND + random.randrange(SECOND), host)
