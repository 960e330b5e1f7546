"""Subscribers that read more slowly than others publish to them (§7.3, §7.7, §7.8)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ..actions import Action, Publish, Subscribe, Succeed
from ..paths import Faults
from ..plan import SECOND, Pace
from .successions import FAULTS

__all__ = ["SLOW_CREDIT", "draw_paces"]

TRICKLE = Pace(1, 1_800_000)
"""One message each 1.8 s: too few to be waited for, and each in less than the time in which one is missed."""
STEADY = (Pace(1, 20_000), Pace(10, 100_000), Pace(40, 500_000))
"""Enough to be waited for, however much waits."""
SLOW_CREDIT = 30
"""Messages that a slow one takes from an owner without an answer: what is more waits there."""
QUEUES = (20, 60)
"""Messages that may wait for a session at every node: few, so that a run can fill it."""


def draw_paces(
    random: Random,
    clients: tuple[str, ...],
    topics: tuple[str, ...],
    length: int,
    paths: Faults,
    actions: list[Action],
) -> tuple[dict[str, Pace], int, Faults, list[Action]]:
    """Five of six plans have none. Returns the paces of those who are slow, how many messages may wait for a
    session (0: as many as usual), the paths, and the actions, with bursts of all publishers to a slow one.
    No host or path fails, so that nobody has another reason to be late."""
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
