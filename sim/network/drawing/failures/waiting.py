"""Messages that wait for a session whose owner is stopped for longer than its lease (§5.6), or hands its
topics over in the meantime (§5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from hbroker.config import LeasePolicy
from hbroker.protocol import timers

from ...actions import (
    Action,
    Continue,
    Depart,
    Dismiss,
    Exhaust,
    Falter,
    Leave,
    Move,
    Publish,
    Restart,
    Stop,
    Subscribe,
    Succeed,
)
from ...paths import Faults
from ...plan import ROOT, SECOND, NodePlan
from ..nodes.successions import FAULTS, owned

__all__ = ["draw_waiting"]

WAITING: Final = "w0"
EXPIRY_S: Final = 3_600
MESSAGES: Final = 400
SIZE: Final = 900
"""In bytes. What waits is more than links carry at once, so that copying it takes a while."""


def draw_waiting(
    random: Random,
    nodes: list[NodePlan],
    late: set[str],
    clients: tuple[str, ...],
    topics: tuple[str, ...],
    paths: Faults,
    actions: list[Action],
) -> tuple[dict[str, int], Faults, list[Action]]:
    """The session for which messages wait with its expiry in seconds, the paths, and the actions. Four of
    five plans have none.

    Nothing else fails, so that every message that waited must come. Not under `serve`, where a lease does not
    end (§5.6).
    """
    owners = [(node, topic) for node in nodes if node.name not in late for topic in owned(node, topics)]
    chosen = [one for one in owners if one[0].name != ROOT and one[0].policy is LeasePolicy.FENCE]
    has_other = any(isinstance(action, (Exhaust, Falter, Succeed)) for action in actions)
    kind = random.randrange(10)
    if kind > 1 or not chosen or has_other:
        return {}, paths, actions
    node, topic = random.choice(chosen)
    paths = Faults(loss=min(paths.loss, 0.01), delay_us=min(paths.delay_us, 20_000))
    actions = [action for action in actions if not isinstance(action, FAULTS)]
    publishers = [client for client in clients if client.startswith("p")]
    begin = SECOND + random.randrange(5 * SECOND)
    actions += [Subscribe(0, WAITING, topic, 2), Depart(begin, WAITING, ends_session=False)]
    if kind == 0:
        actions += _stop(random, node, topic, publishers, begin + SECOND)
    else:
        moved = [some for some in nodes if some is not node and some.policy is LeasePolicy.FENCE]
        target = random.choice([some for some in moved if some.name not in late])
        actions += _move(random, node, target, topic, publishers, begin + SECOND)
        actions = [_exact(action, topic) for action in actions]
    remaining = [a for a in actions if not (isinstance(a, (Leave, Dismiss)) and a.node == node.name)]
    return {WAITING: EXPIRY_S}, paths, remaining


def _stop(random: Random, node: NodePlan, topic: str, publishers: list[str], begin: int) -> Iterator[Action]:
    """The owner is stopped past its lease, and has its subtree again some time before the client is back."""
    for _ in range(random.randint(5, 50)):
        yield _message(random, begin, SECOND, topic, publishers)
    at = begin + 2 * SECOND + random.randrange(3 * SECOND)
    until = at + timers.LEASE + random.randrange(SECOND, 15 * SECOND)
    yield Stop(at, node.name)
    yield Continue(until, node.name)
    yield Restart(until + random.randrange(10 * SECOND), WAITING)


def _move(
    random: Random, node: NodePlan, target: NodePlan, topic: str, publishers: list[str], begin: int
) -> Iterator[Action]:
    """The subtree moves. While the queue is copied, the client connects for a moment, and more is
    published."""
    for _ in range(MESSAGES):
        yield _message(random, begin, 2 * SECOND, topic, publishers, SIZE)
    at = begin + 4 * SECOND
    yield Move(at, node.subtree, target.name)
    returns_at = at + random.randrange(SECOND // 5)
    leaves_at = returns_at + random.randrange(SECOND // 20, SECOND)
    yield Restart(returns_at, WAITING)
    yield Depart(leaves_at, WAITING, ends_session=False)
    for _ in range(MESSAGES // 4):
        yield _message(random, at, SECOND, topic, publishers)
    yield Restart(at + random.randrange(2, 10) * SECOND, WAITING)


def _exact(action: Action, topic: str) -> Action:
    """Makes each message one that owners accept exactly once for the session (`message_totals`)."""
    if not isinstance(action, Publish) or action.topic != topic:
        return action
    return replace(action, qos=2, size=min(max(1, action.size), SIZE), retain=False)


def _message(
    random: Random, begin: int, within: int, topic: str, publishers: list[str], size: int = 20
) -> Publish:
    at = begin + random.randrange(within)
    return Publish(at, random.choice(publishers), topic, random.choice((1, 2)), size)
