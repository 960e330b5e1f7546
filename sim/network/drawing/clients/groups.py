"""Shared groups (§6.5): their members, which come and go, and have no other subscriptions."""

from __future__ import annotations

from random import Random

from ...actions import Action, Crash, Depart, Restart, Roam, Subscribe, Unsubscribe
from ...plan import SECOND

__all__ = ["draw_groups"]


def draw_groups(random: Random, topics: tuple[str, ...], length: int) -> tuple[dict[str, int], list[Action]]:
    """The members with the expiry of each one's session (0: not persistent), and their actions. Three of five
    plans have none.

    The expiries are short enough for a run to be quiet in the end: then what waits for a member goes to
    another.
    """
    members: dict[str, int] = {}
    actions: list[Action] = []
    for group in range(random.choice((0, 0, 0, 1, 2))):
        topic, qos = random.choice(topics), random.randint(0, 2)
        filter = random.choice((topic, topic, f"{topic.split('/')[0]}/#", "#"))
        for number in range(random.randint(2, 4)):
            member = f"g{group}m{number}"
            members[member] = random.choice((0, 0, 3, 20))
            at = random.choice((0, 0, random.randrange(length)))
            actions.append(Subscribe(at, member, filter, qos, f"g{group}"))
            actions += _draw_end(random, member, filter, length)
    return members, actions


def _draw_end(random: Random, member: str, filter: str, length: int) -> list[Action]:
    """How a member ends. Half of them stay. One that is not persistent comes back as a member of no group."""
    at = random.randrange(length)
    ends: list[Action] = [
        Unsubscribe(at, member, filter),
        Crash(at, member),
        Depart(at, member, ends_session=False),
        Roam(at, member),
    ]
    if random.random() < 0.5:
        return []
    end = random.choice(ends)
    back = at + round(random.choice((0.1, 5, 30)) * random.random() * SECOND) + 1
    is_gone = isinstance(end, Crash | Depart)
    return [end, Restart(back, member)] if is_gone and random.random() < 0.7 else [end]
