"""Orders of operators (§5.7): nodes that leave, and subtrees that move."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hbroker.config import LeasePolicy

from ...actions import Action, Dismiss, Move
from ...plan import ROOT, NodePlan

__all__ = ["draw_moves"]


def draw_moves(
    random: Random, nodes: list[NodePlan], topics: tuple[str, ...], length: int
) -> Iterator[Action]:
    """The orders. Half of all plans have none. A node's whole subtree moves, or one topic of its owner.

    Not under `serve`: if such a node handed a subtree back while its parent is silent, no node would serve it
    (§5.6).
    """
    movable = [node for node in nodes if node.name != ROOT and node.policy is LeasePolicy.FENCE]
    if not movable or random.random() < 0.5:
        return
    subtrees = [*(node.subtree for node in movable), *topics]
    for _ in range(random.randint(1, 5)):
        at, node = random.randrange(length), random.choice(movable)
        if random.random() < 0.25:
            yield Dismiss(at, node.name)
        else:
            yield Move(at, random.choice(subtrees), node.name)
