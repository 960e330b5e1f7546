"""The join key of a network, and the replayed packets of a network that has one."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ..actions import Action, Replay
from ..attacker import Attack

__all__ = ["draw_attacks"]


def draw_attacks(random: Random, length: int) -> tuple[bytes, Iterator[Action]]:
    """The join key, and the attacks. A network without a key has no attacks: it accepts any node (§5.5)."""
    if random.random() < 0.25:
        return b"", iter(())
    times = (random.randrange(length) for _ in range(random.choice((0, 2, 5, 10))))
    attacks = [Replay(at, random.choice(list(Attack))) for at in times]
    return random.randbytes(16), iter(attacks)
