"""Nodes that die for good, and whose subtrees other nodes claim at once (§5.8)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hbroker.config import LeasePolicy
from hbroker.protocol import timers

from ...actions import DISTURBANCES, Action, Continue, Heal, Publish, Restart, Succeed, Wake
from ...paths import Faults
from ...plan import ROOT, SECOND, NodePlan

__all__ = ["FAULTS", "draw_successions", "meanwhile", "owned"]

MEANWHILE = timers.LEASE + 10 * SECOND
"""The time until everything is quiet again."""


def draw_successions(
    random: Random,
    nodes: list[NodePlan],
    clients: tuple[str, ...],
    topics: tuple[str, ...],
    paths: Faults,
    actions: list[Action],
) -> tuple[Faults, list[Action]]:
    """The paths, and the actions with these deaths and with messages to topics that then have no owner. Four
    of five plans have none.

    In half of the other plans nothing else fails, so that every message published in the meantime must come.
    Not under `serve`: no node would ever take such a subtree back (§5.6).
    """
    mortal = [node for node in nodes if node.name != ROOT and node.policy is LeasePolicy.FENCE]
    count = random.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 2))
    if len(mortal) < 2 or not count:
        return paths, actions
    if random.random() < 0.5:
        paths = Faults(loss=min(paths.loss, 0.01), delay_us=paths.delay_us)
        actions = [action for action in actions if not isinstance(action, FAULTS)]
    else:
        actions = list(actions)
    for _ in range(count):
        node, heir = random.sample(mortal, 2)
        at = random.randrange(SECOND, 10 * SECOND)
        actions.append(Succeed(at, node.name, heir.name))
        below = [topic for topic in topics if topic.startswith(f"{node.subtree}/")]
        publishers = [client for client in clients if client.startswith("p")]
        actions += meanwhile(random, at, publishers, below)
    return paths, actions


def meanwhile(random: Random, at: int, publishers: list[str], topics: list[str]) -> Iterator[Action]:
    """Messages to these topics, while everything becomes quiet again after a death."""
    for moment in range(at, at + MEANWHILE, SECOND // 4) if topics else ():
        qos = random.choice((1, 2))
        yield Publish(moment, random.choice(publishers), random.choice(topics), qos, 20)


def owned(node: NodePlan, topics: tuple[str, ...]) -> list[str]:
    """The topics right at the top of a node's subtree."""
    return [topic for topic in topics if topic.rpartition("/")[0] == node.subtree]


FAULTS = (*DISTURBANCES, Heal, Continue, Wake, Restart)
"""Faults, and the actions that end them."""
