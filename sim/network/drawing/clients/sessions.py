"""Persistent sessions (§6.4), and the times at which their clients are offline."""

from __future__ import annotations

from random import Random

from ...actions import Action, Crash, Depart, Restart
from ...plan import SECOND

__all__ = ["draw_sessions"]


def draw_sessions(
    random: Random, clients: tuple[str, ...], length: int
) -> tuple[dict[str, int], list[Action]]:
    """The sessions' expiries in seconds, and the actions by which their clients come and go. Half of all
    plans have none.

    Some clients come back too late, and some not at all.
    """
    if random.random() < 0.5:
        return {}, []
    persistent = [client for client in clients if client.startswith("s") and random.random() < 0.7]
    expiries = {client: random.choice((3, 20, 60, 3_600)) for client in persistent}
    actions: list[Action] = []
    for client in persistent:
        for _ in range(random.choice((0, 1, 1, 2))):
            at = random.randrange(length)
            is_crash = random.random() < 0.4
            actions.append(Crash(at, client) if is_crash else Depart(at, client, random.random() < 0.1))
            if random.random() < 0.9:
                back = at + round(random.choice((0.1, 5, 30)) * random.random() * SECOND) + 1
                actions.append(Restart(back, client, random.random() < 0.9))
    return expiries, actions
