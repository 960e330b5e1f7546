"""What the nodes of a network forget before `hbroker up` starts the network again.

The launcher knows that none of its nodes is alive. So no node needs to wait for the leases that it granted to
another of them. But a node that was started elsewhere may be alive, and hold a part of such a subtree. Only
its parent knows of that part. So all nodes that delegated a subtree around that part keep this delegation,
until the parent is back.
"""

from __future__ import annotations

from collections.abc import Mapping

from hbroker.runtime.node.state_files import NodeStateFiles
from hbroker.storage.record_file import Damage
from hbroker.subtree import depth, prefixes

__all__ = ["forget_the_dead"]


def forget_the_dead(memories: Mapping[str, NodeStateFiles]) -> list[Damage]:
    """Removes from the state files of these nodes, none of which is alive, the claims that orders changed,
    and the delegations to each other. It keeps a delegation if a node that is not among them holds, or may
    hold, a part of the subtree.

    `memories`: the state files by the node's name. Returns the damage that was found. Raises OSError.
    """
    known = {name: memory.review() for name, memory in memories.items()}
    held: set[str] = set()
    for recalled in known.values():
        for cut in recalled.delegations:
            holder = known.get(cut.node)
            if holder is None or holder.forgets_delegations:  # It is unknown what this holder has delegated.
                held.update(prefixes(cut.subtree, depth(cut.subtree)))
    for memory in memories.values():
        memory.begin_anew(lambda cut: cut.node in known and cut.subtree not in held)
    return [damage for recalled in known.values() for damage in recalled.damage]
