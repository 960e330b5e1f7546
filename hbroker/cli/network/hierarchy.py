"""The live hierarchy, from what each node says of itself, and its drawing.

A node keeps its status, retained, on `$SYS/nodes/<name>/status`, a topic that it owns. One subscription to
all of them finds every node, since every owner of a topic that may match answers it (docs/protocol.md §6.2):
whoever answers but does not deliver a status is there, and ill.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

STATUS_FILTER = "$SYS/nodes/+/status"
SESSIONS_FILTER = "$SYS/nodes/+/sessions"

Status: TypeAlias = dict[str, Any]
"""As `tree --json` has it; only `name` is sure to be there."""


def read_statuses(root: str, timeout: float, *, with_clients: bool = False) -> tuple[list[Status], list[str]]:
    """The status of every node that tells it in time, and the names of those that do not. `with_clients`:
    and the accounts of their sessions.

    Raises Unreachable where the root does not answer.
    """
    from hbroker import sync

    deadline = time.monotonic() + timeout
    filters = (STATUS_FILTER, SESSIONS_FILTER) if with_clients else (STATUS_FILTER,)
    with (
        sync.connect(root, timeout=timeout) as client,
        client.subscribe(*filters, qos=1, timeout=timeout) as messages,
    ):
        reported: dict[str, dict[str, Status]] = {}
        """By node and leaf."""
        while any(len(reported.get(name, ())) < len(filters) for name in messages.owners):
            message = messages.next(timeout=max(deadline - time.monotonic(), 0.0))
            if message is None:
                break
            status = parse_status(message.topic, message.payload)
            if status is not None:
                reported.setdefault(status["name"], {})[message.topic.rpartition("/")[2]] = status
        statuses = [_joined(accounts) for accounts in reported.values() if len(accounts) == len(filters)]
        silent = sorted(set(messages.owners) - {status["name"] for status in statuses})
    return in_order(statuses), silent


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


def _joined(accounts: dict[str, Status]) -> Status:
    clients = accounts.get("sessions")
    return (
        accounts["status"] if clients is None else accounts["status"] | {"clients": clients.get("sessions")}
    )


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
