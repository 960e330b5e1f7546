"""What a node must know again after a restart: the subtrees that it delegated, and what orders changed of
those that it claims.

Without it a parent that restarts would take its children's subtrees for its own until they renew, and a topic
would have two owners. The file is written before the cut that it tells of is made. It is not synced to the
disk: it outlives the process, and a host takes longer to come back than a lease lasts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from hbroker.config import LeasePolicy
from hbroker.errors import LocalError
from hbroker.protocol.jurisdiction import Delegation

__all__ = ["ClaimsFile", "DelegationFile", "UnreadableMemory"]


class UnreadableMemory(LocalError):
    """The file holds something else: to go on without it could give a topic two owners."""


_HEAD: Final = '{"holds": "delegations"}'
_SLACK: Final = 256
"""A file is rewritten once it has twice as many lines as delegations, and so many."""


class DelegationFile:
    """The delegations of one node, a line of JSON for each; a later line of a subtree takes the place of an
    earlier, and one without a node says that the delegation has ended. So to join costs a parent a line,
    however many children it has."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._live: dict[str, str] = {}
        self._lines: int | None = None
        """None: what the file holds is not what this object wrote."""

    def note(self, delegation: Delegation, ended: bool) -> None:
        """A delegation is about to be made or changed, or has ended. Raises OSError."""
        line = _line(delegation, ended)
        self._live.pop(delegation.subtree, None)
        if not ended:
            self._live[delegation.subtree] = line
        if self._lines is None or self._lines > 2 * len(self._live) + _SLACK:
            self._rewrite()
        else:
            self._append(line)

    def store(self, delegations: Iterable[Delegation]) -> None:
        """Replaces what is stored. Raises OSError."""
        self._live = {d.subtree: _line(d, ended=False) for d in delegations}
        self._rewrite()

    def recall(self) -> list[Delegation]:
        """What was stored last; nothing where there is no file. Raises OSError, UnreadableMemory."""
        try:
            head, *lines = self._path.read_text().split("\n")
        except FileNotFoundError:
            return []
        live: dict[str, Delegation] = {}
        try:
            if head != _HEAD or lines[-1:] != [""]:
                raise ValueError("it does not begin or end as such a file does")
            for entry in map(json.loads, lines[:-1]):
                live.pop(entry["subtree"], None)
                if "node" in entry:
                    live[entry["subtree"]] = _delegation(entry)
        except (ValueError, TypeError, KeyError) as error:
            raise UnreadableMemory(
                f"{self._path} does not hold delegations ({error}); remove it once no child is left"
            ) from error
        self._live = {subtree: _line(d, ended=False) for subtree, d in live.items()}
        return list(live.values())

    def _append(self, line: str) -> None:
        encoded = f"{line}\n".encode()
        lines, self._lines = self._lines or 0, None
        with self._path.open("ab", buffering=0) as file:
            if file.write(encoded) < len(encoded):
                raise OSError(f"{self._path} could not be written as a whole")
        self._lines = lines + 1

    def _rewrite(self) -> None:
        self._lines = None
        _replace(self._path, "".join(f"{line}\n" for line in (_HEAD, *self._live.values())))
        self._lines = len(self._live)


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
        _replace(self._path, json.dumps({"configured": self._configured, "claims": list(claims)}))

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


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(text)
    os.replace(draft, path)


def _line(delegation: Delegation, ended: bool) -> str:
    entry: dict[str, object] = {"subtree": delegation.subtree}
    if not ended:
        entry |= {
            "node": delegation.node,
            "address": list(delegation.address),
            "incarnation": delegation.incarnation,
            "epoch": delegation.epoch,
            "policy": delegation.policy.value,
        }
    return json.dumps(entry)


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
