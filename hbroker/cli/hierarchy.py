"""The live hierarchy, from what each node says of itself, and its drawing.

A node keeps its status, retained, on `$SYS/nodes/<name>/status`, a topic that it owns. One subscription to
all of them finds every node, since every owner of a topic that may match answers it (docs/protocol.md §6.2):
whoever answers but does not deliver a status is there, and ill.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

Status: TypeAlias = dict[str, Any]
"""As `tree --json` has it; only `name` is sure to be there."""


def parse_status(topic: str, payload: bytes) -> Status | None:
    """A status as its node sent it; None for what is none."""
    try:
        status = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    named = isinstance(status, dict) and status.get("name") == topic.split("/")[2]
    return status if named else None


def in_order(statuses: Sequence[Status]) -> list[Status]:
    """Parents before their children, siblings by subtree."""
    return [status for status, _ in _walk(statuses)]


def drawing(statuses: Sequence[Status]) -> list[str]:
    """A label for each node, in the order of `in_order`: its name behind the branches of the tree."""
    return [f"{branches}{status['name']}" for status, branches in _walk(statuses)]


def _walk(statuses: Sequence[Status]) -> list[tuple[Status, str]]:
    names = {status["name"] for status in statuses}
    children: dict[str | None, list[Status]] = {}
    for status in sorted(statuses, key=lambda status: (str(status.get("subtree", "")), status["name"])):
        parent = status.get("parent")
        above = parent if parent in names and parent != status["name"] else None
        children.setdefault(above, []).append(status)

    walked: list[tuple[Status, str]] = []
    seen: set[str] = set()

    def visit(status: Status, first: str, others: str) -> None:
        if status["name"] in seen:
            return
        seen.add(status["name"])
        walked.append((status, first))
        below = children.get(status["name"], [])
        for child in below:
            last = child is below[-1]
            visit(child, others + ("└─ " if last else "├─ "), others + ("   " if last else "│  "))

    for top in children.get(None, []):
        visit(top, "", "")
    # Nodes that name each other as parents, for a moment, while one moves.
    for status in statuses:
        visit(status, "", "")
    return walked
