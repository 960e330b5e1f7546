"""Wall clocks that are set while their nodes do not run (§9)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from ...actions import Action, Publish, Restart
from ...plan import NodePlan

__all__ = ["draw_clocks"]

HOUR = 3_600
STEPS = (-72 * HOUR, -HOUR, -5, 5, HOUR, 72 * HOUR)
"""In seconds."""


def draw_clocks(random: Random, nodes: list[NodePlan], actions: list[Action]) -> list[Action]:
    """The actions, with other wall clocks for nodes that restart. Three of four plans have none.

    A node whose clock was set has its files: without them only the clock could tell it what it granted
    (§5.1). No message of such a plan expires, because expiry depends on the hosts' wall clocks.
    """
    names = {node.name for node in nodes}
    begins_anew = any(isinstance(action, Restart) and action.host in names for action in actions)
    if not begins_anew or random.randrange(4):
        return actions
    return [_set(random, action, names) for action in actions]


def _set(random: Random, action: Action, names: set[str]) -> Action:
    match action:
        case Restart() if action.host in names:
            return replace(action, remembers=True, clock_step_s=random.choice(STEPS))
        case Publish():
            return replace(action, expiry=None)
        case _:
            return action
