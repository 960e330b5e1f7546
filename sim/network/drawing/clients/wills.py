"""Wills of clients (§6.6)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ...actions import Action, Crash, SetWill
from ...plan import SECOND

__all__ = ["draw_wills"]


def draw_wills(
    random: Random, clients: tuple[str, ...], topics: tuple[str, ...], length: int
) -> Iterator[Action]:
    """The clients' wills. Three of five plans have none. Some of the clients die."""
    if random.random() < 0.6:
        return
    for client in clients:
        if random.random() < 0.4:
            at = random.choice((0, random.randrange(length)))
            delay = random.choice((0, 2, 10))
            yield SetWill(at, client, random.choice(topics), random.randint(0, 2), delay)
            if random.random() < 0.4:
                yield Crash(at + random.randrange(10 * SECOND), client)
