"""The live hierarchy, from the status of each node, and its drawing.

A node publishes its status as a retained message on `$SYS/nodes/<name>/status`, a topic that it owns. One
subscription to all these topics finds every node, because every owner of a topic that may match answers it
(docs/protocol.md §6.2). A node that answers and delivers no status is running, but not healthy.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from hbroker.runtime.credentials import PathLike
    from hbroker.sync import Client

STATUS_FILTER = "$SYS/nodes/+/status"
SESSIONS_FILTER = "$SYS/nodes/+/sessions"
TOPICS_FILTER = "$SYS/nodes/+/topics"

Status: TypeAlias = dict[str, Any]
"""A node's entry of `tree --json`. Only `name` is always present."""


def read_statuses(
    root: str,
    timeout: float,
    authority: PathLike | None = None,
    token: PathLike | None = None,
    *,
    with_clients: bool = False,
    with_ids: bool = False,
) -> tuple[list[Status], list[str]]:
    """The status of every node that answers in time, and the names of the nodes without a status.

    `authority`, `token`: as for `hbroker.connect`. `with_clients`: with the counters of their sessions.
    `with_ids`: with the id of the status message, as `run` and `own`. Raises Unreachable if the root does not
    answer.
    """
    from hbroker import sync

    with sync.connect(root, timeout=timeout, authority=authority, token=token) as client:
        return ask_statuses(client, timeout, with_clients=with_clients, with_ids=with_ids)


def ask_statuses(
    client: Client, timeout: float, *, with_clients: bool = False, with_ids: bool = False
) -> tuple[list[Status], list[str]]:
    """As `read_statuses`, with a client of the network."""
    deadline = time.monotonic() + timeout
    filters = (STATUS_FILTER, SESSIONS_FILTER) if with_clients else (STATUS_FILTER,)
    with client.subscribe(*filters, qos=1, timeout=timeout) as messages:
        reported: dict[str, dict[str, Status]] = {}
        """By node and last topic level."""
        while any(len(reported.get(name, ())) < len(filters) for name in messages.owners):
            message = messages.next(timeout=max(deadline - time.monotonic(), 0.0))
            if message is None:
                break
            status = parse_status(message.topic, message.payload)
            if status is not None:
                if with_ids:
                    status |= {"run": message.publisher, "own": message.sequence}
                reported.setdefault(status["name"], {})[message.topic.rpartition("/")[2]] = status
        statuses = [_joined(accounts) for accounts in reported.values() if len(accounts) == len(filters)]
        silent = sorted(set(messages.owners) - {status["name"] for status in statuses})
    return in_order(statuses), silent


def parse_status(topic: str, payload: bytes) -> Status | None:
    """A status as its node sent it; None if the payload is not a status."""
    try:
        status = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    named = isinstance(status, dict) and status.get("name") == topic.split("/")[2]
    return status if named else None


def in_order(statuses: Sequence[Status]) -> list[Status]:
    """The statuses with parents before their children, and siblings by subtree."""
    return [status for status, _ in _walk(statuses)]


def drawing(statuses: Sequence[Status]) -> list[str]:
    """A label for each node, in the order of `in_order`: the branches of the tree, and the node's name."""
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
    # Nodes that name each other as parent, for a moment, while one of them moves.
    for status in statuses:
        visit(status, "", "")
    return walked
