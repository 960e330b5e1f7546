"""Clients that publish under another client's publisher id (§7.9)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ..actions import Action, Impersonate

__all__ = ["draw_impostors"]


def draw_impostors(
    random: Random, clients: tuple[str, ...], topics: tuple[str, ...], length: int
) -> Iterator[Action]:
    """The impostors' actions. Three of five plans have none. They use sequence numbers that their victims
    will use."""
    publishers = [client for client in clients if client.startswith("p")]
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        at, count = random.randrange(length), random.choice((1, 50, 300))
        qos, retain = random.choice((0, 1, 2, 2)), random.random() < 0.2
        yield Impersonate(at, random.choice(publishers), random.choice(topics), qos, count, retain)
