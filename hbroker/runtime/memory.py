"""What a node must know again after a restart: the subtrees that it delegated.

Without it a parent that restarts would take its children's subtrees for its own until they renew, and a topic
would have two owners. The file is written before the cut that it tells of is made, and replaced by rename. It
is not synced to the disk: it outlives the process, and a host takes longer to come back than a lease lasts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hbroker.config import LeasePolicy
from hbroker.errors import LocalError
from hbroker.protocol.jurisdiction import Delegation

__all__ = ["DelegationFile", "UnreadableMemory"]


class UnreadableMemory(LocalError):
    """The file holds something else: to go on without it could give a topic two owners."""


class DelegationFile:
    """The delegations of one node, as JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def store(self, delegations: Sequence[Delegation]) -> None:
        """Replaces what is stored. Raises OSError."""
        entries = [
            {
                "subtree": d.subtree,
                "node": d.node,
                "address": list(d.address),
                "incarnation": d.incarnation,
                "epoch": d.epoch,
                "policy": d.policy.value,
            }
            for d in delegations
        ]
        draft = self._path.with_name(f"{self._path.name}.new")
        draft.write_text(json.dumps(entries))
        os.replace(draft, self._path)

    def recall(self) -> list[Delegation]:
        """What was stored last; nothing where there is no file. Raises OSError, UnreadableMemory."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return []
        try:
            return [_delegation(entry) for entry in json.loads(text)]
        except (ValueError, TypeError, KeyError) as error:
            raise UnreadableMemory(
                f"{self._path} does not hold delegations ({error}); remove it once no child is left"
            ) from error


def _delegation(entry: dict[str, Any]) -> Delegation:
    host, port = entry["address"]
    return Delegation(
        subtree=str(entry["subtree"]),
        node=str(entry["node"]),
        address=(str(host), int(port)),
        incarnation=int(entry["incarnation"]),
        epoch=int(entry["epoch"]),
        policy=LeasePolicy(entry["policy"]),
        link=None,
        until=0,
    )
