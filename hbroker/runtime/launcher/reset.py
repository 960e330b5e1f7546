"""What the nodes of a network forget of its last run, before the network begins again.

`hbroker up` knows that none of its nodes is alive: what one delegated to another need not wait for its lease
to end. But a node that was started elsewhere may live, and hold a part of such a subtree. Only its parent
knows of that part; so whoever is above that parent goes on knowing whose the rest is, until the parent has
come back.
"""

from __future__ import annotations

from collections.abc import Mapping

from hbroker.runtime.node.state_files import NodeStateFiles
from hbroker.storage.record_file import Damage
from hbroker.subtree import depth, prefixes

__all__ = ["forget_the_dead"]


def forget_the_dead(memories: Mapping[str, NodeStateFiles]) -> list[Damage]:
    """Takes out of the memories of these nodes, all of which are dead, what orders changed, and what they
    delegated to each other: but for subtrees that hold a part which is, or may be, another node's.

    `memories`: by the node's name. Returns what was found damaged. Raises OSError.
    """
    known = {name: memory.review() for name, memory in memories.items()}
    held: set[str] = set()
    for recalled in known.values():
        for cut in recalled.delegations:
            holder = known.get(cut.node)
            if holder is None or holder.forgets_delegations:  # What that one delegated nobody knows.
                held.update(prefixes(cut.subtree, depth(cut.subtree)))
    for memory in memories.values():
        memory.begin_anew(lambda cut: cut.node in known and cut.subtree not in held)
    return [damage for recalled in known.values() for damage in recalled.damage]
