"""A chain of nodes, each below the one before, one level of the hierarchy each: owners at every depth."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Topology", "chain", "node_at", "subtree_at"]

Topology: TypeAlias = dict[str, Any]
"""The contents of a topology file without the nodes' addresses: every node gets a free port."""


def chain(depth: int) -> Topology:
    """The topology of a root and so many nodes below each other."""
    return {"nodes": [{"name": node_at(level), "subtree": subtree_at(level)} for level in range(depth + 1)]}


def node_at(depth: int) -> str:
    """The name of the node that owns what is so deep; 0: the root."""
    return f"node-{depth}"


def subtree_at(depth: int) -> str:
    """Its subtree."""
    return "/".join(f"level-{number}" for number in range(1, depth + 1))
