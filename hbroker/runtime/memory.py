"""What a node must know again after a restart: the subtrees that it delegated, and what orders changed of
those that it claims.

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

__all__ = ["ClaimsFile", "DelegationFile", "UnreadableMemory"]


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
        _replace(self._path, entries)

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


class ClaimsFile:
    """The subtrees that a node claims since an order changed them (§5.7), as JSON, beside its delegations.

    They count for the subtrees that the node was configured with then: settings that change are the truth
    again.
    """

    def __init__(self, delegations: Path, configured: Sequence[str]) -> None:
        self._path = delegations.with_name(f"{delegations.name}.claims")
        self._configured = list(configured)

    def store(self, claims: Sequence[str]) -> None:
        """Replaces what is stored. Raises OSError."""
        _replace(self._path, {"configured": self._configured, "claims": list(claims)})

    def recall(self) -> list[str] | None:
        """What was stored last; None where no order changed anything. Raises OSError, UnreadableMemory."""
        try:
            stored = json.loads(self._path.read_text())
            is_current = stored["configured"] == self._configured
            return [str(claim) for claim in stored["claims"]] if is_current else None
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise UnreadableMemory(f"{self._path} does not hold claims ({error}); remove it") from error

    def forget(self) -> None:
        """From now on the settings count."""
        self._path.unlink(missing_ok=True)


def _replace(path: Path, content: object) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(content))
    os.replace(draft, path)


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
