"""From the subtrees that running nodes claim to those that a topology gives them: the moves, in order.

What was delegated below a subtree goes along with it (docs/protocol.md §5.4), so the order matters little.
What goes to another node goes in the order of the file, and then back to the nodes around what no node is to
hold: were it the other way round, these would carry for a while what others take away again. But a subtree
of which a node is to keep parts has to be handed back first, for within it the parts are no claims of their
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hbroker.subtree import is_within
from hbroker.topology.model import Topology

__all__ = ["Move", "moves"]


@dataclass(frozen=True, slots=True)
class Move:
    """One subtree. `source`: the node that claims it; None: it is cut out of another's. `target`: who is to
    have it; None: who owns what is around it."""

    subtree: str
    source: str | None
    target: str | None


def moves(topology: Topology, claimed: Mapping[str, Sequence[str]]) -> list[Move]:
    """What to move. `claimed`: the subtrees of every running node, by its name.

    What nodes claim that the topology does not name is left with them, unless it gives it to another.
    """
    holder = {subtree: name for name, subtrees in claimed.items() for subtree in subtrees}
    wanted = {subtree: node.name for node in topology.nodes if not node.is_root for subtree in node.subtrees}
    given = [
        Move(subtree, holder.get(subtree), name)
        for subtree, name in wanted.items()
        if holder.get(subtree) != name
    ]
    listed = {node.name for node in topology.nodes}
    merged = [
        Move(subtree, name, None)
        for subtree, name in holder.items()
        if name in listed and subtree and subtree not in wanted
    ]
    opened = [move for move in merged if any(is_within(other.subtree, move.subtree) for other in given)]
    return opened + given + [move for move in merged if move not in opened]
