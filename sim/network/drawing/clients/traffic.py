"""The subscriptions and messages of clients."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ...actions import Action, Join, Leave, Publish, Restart, Subscribe, Unsubscribe
from ...plan import SECOND

__all__ = ["draw_messages", "draw_subscriptions", "handovers"]


def handovers(actions: list[Action]) -> list[int]:
    """The times at which subtrees begin to move. What happens at the same time finds the most defects."""
    return [action.at for action in actions if isinstance(action, Join | Leave | Restart)]


def draw_subscriptions(
    random: Random, clients: tuple[str, ...], topics: tuple[str, ...], length: int, handovers: list[int]
) -> Iterator[Action]:
    """Each subscriber subscribes to a topic, or to a wildcard filter around one; half of them from the
    beginning."""
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


def draw_messages(
    random: Random, clients: tuple[str, ...], topics: tuple[str, ...], length: int
) -> Iterator[Action]:
    """Messages. A few are retained, most of these early, or clear a retained message; a few are large."""
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
