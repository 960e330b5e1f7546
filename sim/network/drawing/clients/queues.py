"""The queues of subscribers at owners, and what owners do when they are full (§7.7, §7.8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from ...actions import Action, Overflow, Queue, Subscribe

__all__ = ["draw_for_many", "draw_queues"]


def draw_queues(
    random: Random, clients: tuple[str, ...], actions: Iterable[Action]
) -> tuple[dict[str, int], list[Action]]:
    """The credits of clients that grant little, and the actions with the queues that subscribers ask for.
    Three of five plans have none.

    A client asks for the same bounds with each subscription, because they are its session's. Its policies
    differ.
    """
    if random.random() < 0.6:
        return {}, list(actions)
    bounds: dict[str, Queue] = {}
    credits: dict[str, int] = {}
    for client in clients:
        if client.startswith("s") and random.random() < 0.6:
            messages, size = random.choice(((1, 0), (5, 0), (30, 0), (0, 3_000), (30, 20_000)))
            bounds[client] = Queue(messages, size)
            if random.random() < 0.5:
                credits[client] = random.choice((1, 4, 30))
    return credits, [_draw_queue(random, bounds, action) for action in actions]


def draw_for_many(random: Random, clients: tuple[str, ...]) -> tuple[str, ...]:
    """The clients that publish for many: none in half of the plans, otherwise about half of the clients."""
    if random.random() < 0.5:
        return ()
    return tuple(client for client in clients if random.random() < 0.5)


def _draw_queue(random: Random, bounds: dict[str, Queue], action: Action) -> Action:
    if not isinstance(action, Subscribe) or action.client not in bounds:
        return action
    policies = (Overflow.DROP_OLDEST, Overflow.DROP_OLDEST, Overflow.DROP_NEWEST, Overflow.END_SESSION)
    return replace(action, queue=replace(bounds[action.client], overflow=random.choice(policies)))
