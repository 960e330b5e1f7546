"""A subtree that moves from one node to another and back, again and again, while both are killed and restart
(§5.4).

A node that restarts may be handed a session while the client still has its link to the run before. It may be
handed the same session several times within an idle timeout, or keep it when the handover has failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from hbroker.config import LeasePolicy
from hbroker.protocol import timers

from ...actions import Action, Dismiss, Exhaust, Falter, Leave, Move, Publish, Restart, Succeed
from ...paths import Faults
from ...plan import ROOT, SECOND, NodePlan
from .successions import FAULTS, owned

__all__ = ["draw_returns"]

BEGIN: Final = 3 * SECOND
MOVES: Final = 14
GAPS: Final = SECOND // 2, SECOND, 3 * SECOND, 6 * SECOND
"""The time between two moves. Several of them fit into an idle timeout."""
EVERY: Final = SECOND // 20
"""The time between two messages."""


def draw_returns(
    random: Random,
    nodes: list[NodePlan],
    late: set[str],
    clients: tuple[str, ...],
    topics: tuple[str, ...],
    paths: Faults,
    actions: list[Action],
) -> tuple[Faults, list[Action]]:
    """The paths, and the actions with these moves. Seven of eight plans have none.

    Nothing else fails, so that every message must come. Not under `serve`: if such a node handed a subtree
    back while its parent is silent, no node would serve it (§5.6).
    """
    movable = [n for n in nodes if n.name not in {ROOT, *late} and n.policy is LeasePolicy.FENCE]
    owners = [(node, topic) for node in movable for topic in owned(node, topics)]
    has_other = any(isinstance(action, (Exhaust, Falter, Succeed)) for action in actions)
    if random.randrange(8) or len(movable) < 2 or not owners or has_other:
        return paths, actions
    node, topic = random.choice(owners)
    pair = node, random.choice([other for other in movable if other is not node])
    paths = Faults(loss=min(paths.loss, 0.01), delay_us=min(paths.delay_us, 20_000))
    left = (*FAULTS, Leave, Dismiss, Move)
    actions = [action for action in actions if not isinstance(action, left)]
    publishers = [client for client in clients if client.startswith("p")]
    moves = random.choice((_moves, _moves_within_idle_timeout))
    return paths, [*actions, *moves(random, node.subtree, pair, topic, publishers)]


def _moves(
    random: Random, subtree: str, pair: tuple[NodePlan, NodePlan], topic: str, publishers: list[str]
) -> Iterator[Action]:
    """Moves at any time. After some of them one of the two is killed, at times in the middle of the
    handover."""
    at = BEGIN + random.randrange(SECOND)
    for number in range(MOVES):
        gap = random.choice(GAPS) // 2 + random.randrange(SECOND)
        yield Move(at, subtree, pair[(number + 1) % 2].name)
        if random.random() < 0.4:
            killed_at = at + random.randrange(random.choice((SECOND // 5, gap)))
            restarts_at = killed_at + random.randrange(SECOND // 10, SECOND // 2)
            victim = random.choice(pair).name
            yield from (Falter(killed_at, victim, False), Restart(restarts_at, victim))
            gap = max(gap, restarts_at - at)
        if random.random() < 0.6:
            yield from _messages(random, at, at + gap, topic, publishers)
        at += gap


def _moves_within_idle_timeout(
    random: Random, subtree: str, pair: tuple[NodePlan, NodePlan], topic: str, publishers: list[str]
) -> Iterator[Action]:
    """The second node restarts while clients have links to it. Then it gets the subtree twice: for a moment,
    and just before the links that it opened the first time have been idle for too long."""
    node, other = (plan.name for plan in pair)
    at = BEGIN + random.randrange(SECOND)
    yield from (Move(at, subtree, other), Move(at + SECOND, subtree, node))
    at += 2 * SECOND
    yield from (Falter(at, other, False), Restart(at + SECOND // 10, other))
    at += random.randrange(SECOND // 5, SECOND)
    yield from (Move(at, subtree, other), Move(at + SECOND // 5, subtree, node))
    at += timers.IDLE_TIMEOUT - random.randrange(SECOND // 5)
    yield Move(at, subtree, other)
    yield from _messages(random, at, at + SECOND, topic, publishers)


def _messages(random: Random, begin: int, end: int, topic: str, publishers: list[str]) -> Iterator[Action]:
    for moment in range(begin, end, EVERY):
        yield Publish(moment, random.choice(publishers), topic, random.choice((1, 2)), 20)
