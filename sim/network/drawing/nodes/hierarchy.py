"""The nodes: a root, and a random tree of subtrees below it."""

from __future__ import annotations

from random import Random
from typing import Final

from hbroker.config import LeasePolicy

from ...plan import ROOT, NodePlan

__all__ = ["draw_nodes"]

MOST_NODES: Final = 30
MOST_DRIFT_PPM: Final = 45_000
"""Clocks may be wrong by one second in 20 (§5.6). A little less leaves time for the packets."""


def draw_nodes(random: Random) -> list[NodePlan]:
    """A root and a random hierarchy below it. Few nodes are likelier than many.

    Only a node under `serve` (or the root) delegates to one under `serve` (§5.6).
    """
    subtrees = [""]
    for _ in range(int(MOST_NODES * random.random() ** 2)):
        parent = random.choice([s for s in subtrees if s.count("/") < 3])
        subtree = f"{parent}/{random.choice('abcdef')}".lstrip("/")
        if subtree not in subtrees:
            subtrees.append(subtree)
    serve = random.choice((0.0, 0.0, 0.5))
    serving = {""}
    for subtree in subtrees[1:]:
        if subtree.rpartition("/")[0] in serving and random.random() < serve:
            serving.add(subtree)
    policies = [LeasePolicy.SERVE if s and s in serving else LeasePolicy.FENCE for s in subtrees]
    names = [ROOT, *(f"n{number}" for number in range(1, len(subtrees)))]
    most = random.choice((0, 100, MOST_DRIFT_PPM))
    clocks = [random.randint(-most, most) for _ in subtrees]
    return [NodePlan(*node) for node in zip(names, subtrees, policies, clocks, strict=True)]
