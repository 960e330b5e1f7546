"""The moves that turn the subtrees that running nodes claim into those that a topology gives them, in order.

The cuts below a subtree go along with it (docs/protocol.md §5.4), so the order of most moves does not matter.
There are three groups:

1. A subtree that is handed back, while the same or another node is to have a part of it. It is first, because
   within it the part is no claim of its own (§5.1).
2. Subtrees that go to another node, in the order of the file.
3. All other subtrees that are handed back to the owner around them. If they were earlier, that owner would
   for a while carry the load of subtrees that it then gives away again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hbroker.subtree import is_within
from hbroker.topology.model import Topology

__all__ = ["Move", "moves"]


@dataclass(frozen=True, slots=True)
class Move:
    """The move of one subtree. `source`: the node that claims it; None: no node claims it, and it is a part
    of another subtree. `target`: the node that is to claim it; None: it goes back to the owner of what is
    around it."""

    subtree: str
    source: str | None
    target: str | None


def moves(topology: Topology, claimed: Mapping[str, Sequence[str]]) -> list[Move]:
    """The moves, in order. `claimed`: the subtrees of each running node, by its name.

    If the topology does not list a node, the node keeps the subtrees that it claims, except those that the
    topology gives to another node.
    """
    holder = {subtree: name for name, subtrees in claimed.items() for subtree in subtrees}
    targets = {subtree: node.name for node in topology.nodes if not node.is_root for subtree in node.subtrees}
    transfers = [
        Move(subtree, holder.get(subtree), name)
        for subtree, name in targets.items()
        if holder.get(subtree) != name
    ]
    listed = {node.name for node in topology.nodes}
    merged = [
        Move(subtree, name, None)
        for subtree, name in holder.items()
        if name in listed and subtree and subtree not in targets
    ]
    first = [move for move in merged if any(is_within(other.subtree, move.subtree) for other in transfers)]
    return first + transfers + [move for move in merged if move not in first]
