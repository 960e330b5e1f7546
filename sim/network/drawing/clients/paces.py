"""Subscribers that read more slowly than others publish to them (§7.3, §7.7, §7.8)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ...actions import Action, Publish, Subscribe, Succeed
from ...paths import Faults
from ...plan import SECOND, Pace
from ..nodes.successions import FAULTS

__all__ = ["SLOW_CREDIT", "draw_paces"]

TRICKLE = Pace(1, 1_800_000)
"""One message every 1.8 s: too few for an owner to wait for the session, and each within the time after which
a session counts as stalled."""
STEADY = (Pace(1, 20_000), Pace(10, 100_000), Pace(40, 500_000))
"""Fast enough for owners to wait for the session, however many messages are queued."""
SLOW_CREDIT = 30
"""The credit of a slow subscriber in messages. Further messages wait at the owner."""
QUEUES = (20, 60)
"""The bound of a session's queue at every node in messages: small, so that a run can fill it."""


def draw_paces(
    random: Random,
    clients: tuple[str, ...],
    topics: tuple[str, ...],
    length: int,
    paths: Faults,
    actions: list[Action],
) -> tuple[dict[str, Pace], int, Faults, list[Action]]:
    """The paces of slow subscribers, the bound of a session's queue (0: the default), the paths, and the
    actions. Five of six plans have none.

    The actions have bursts of all publishers to a slow subscriber. No host or path fails, so that no process
    has another reason to be late.
    """
    if random.randrange(6):
        return {}, 0, paths, actions
    paths = Faults(loss=min(paths.loss, 0.01), delay_us=min(paths.delay_us, 20_000))
    actions = [action for action in actions if not isinstance(action, (*FAULTS, Succeed))]
    subscribers = [client for client in clients if client.startswith("s")]
    publishers = [client for client in clients if client.startswith("p")]
    slow = random.sample(subscribers, random.randint(1, min(2, len(subscribers))))
    paces = {client: TRICKLE if random.random() < 0.4 else random.choice(STEADY) for client in slow}
    for client in slow:
        topic, qos = random.choice(topics), random.randint(1, 2)
        actions.append(Subscribe(0, client, topic, qos))
        actions += _bursts(random, publishers, topic, length)
    return paces, random.choice(QUEUES), paths, actions


def _bursts(random: Random, publishers: list[str], topic: str, length: int) -> Iterator[Action]:
    for _ in range(random.randint(1, 3)):
        begin = SECOND + random.randrange(length)
        for publisher in publishers:
            qos = random.randint(1, 2)
            for _ in range(random.randint(20, 120)):
                yield Publish(begin + random.randrange(SECOND), publisher, topic, qos, 20)
