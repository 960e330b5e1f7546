"""A chain of nodes, each one level below the one before: so there is an owner at every depth."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Topology", "chain", "node_at", "subtree_at"]

Topology: TypeAlias = dict[str, Any]
"""The contents of a topology file without the nodes' addresses: every node gets a free port."""


def chain(depth: int) -> Topology:
    """The topology of a root and `depth` nodes below each other."""
    return {"nodes": [{"name": node_at(level), "subtree": subtree_at(level)} for level in range(depth + 1)]}


def node_at(depth: int) -> str:
    """The name of the node that owns this depth; 0: the root."""
    return f"node-{depth}"


def subtree_at(depth: int) -> str:
    """The subtree of the node at this depth."""
    return "/".join(f"level-{number}" for number in range(1, depth + 1))
