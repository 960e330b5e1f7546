"""Workspaces: spaces of topics that are apart from each other in one network (docs/workspaces.md, ADR 37).

A workspace is the subtree `$workspace/NAME`. A client of it uses topics, filters and client ids without that
prefix, which its edge adds and strips: its library, or its gateway. Everything below knows the names of the
network alone. All topics that are in no workspace are the default workspace, where both names are the same.

A topic of a workspace is not empty and does not begin with `$`. So within a workspace, too, no wildcard at
the first level matches a topic that begins with `$` (MQTT 5 §4.7.2), because there is none. The native core
does the same for the topics of messages (`native/src/workspace.rs`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT", "ROOT", "Workspace", "name_is_valid", "name_of"]

ROOT: Final = "$workspace"
"""The first level of all topics, filters and client ids of workspaces."""
_NAME: Final = re.compile(r"[a-z0-9-]{1,64}")


def name_is_valid(name: str) -> bool:
    """Whether a workspace may have this name: 1 to 64 lower-case letters, digits and `-`."""
    return _NAME.fullmatch(name) is not None


def name_of(absolute: str) -> str:
    """The workspace of a topic, filter or client id of the network. Empty: it is in none, or in several."""
    root, _, rest = absolute.partition("/")
    name = rest.partition("/")[0]
    return name if root == ROOT and name_is_valid(name) else ""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The workspace of a client. `name`: empty: the default workspace. Raises ValueError if no workspace may
    have that name."""

    name: str = ""

    def __post_init__(self) -> None:
        if self.name and not name_is_valid(self.name):
            raise ValueError(f"{self.name[:80]!r} is no name of a workspace: use 1 to 64 of a-z, 0-9 and `-`")

    @property
    def prefix(self) -> str:
        """What its names in the network begin with."""
        return f"{ROOT}/{self.name}/" if self.name else ""

    def absolute(self, local: str) -> str | None:
        """The name in the network of a client's topic or filter. None: no workspace has a topic of this name,
        or that a filter of this name matches."""
        return self.prefix + local if not self.name or _is_local(local) else None

    def local(self, absolute: str) -> str | None:
        """The inverse of `absolute`. None: a client of this workspace knows no such topic or filter."""
        local = absolute.removeprefix(self.prefix)
        is_known = absolute.startswith(self.prefix) and _is_local(local)
        return local if not self.name or is_known else None

    def client_name(self, client_id: str) -> str:
        """The name in the network of a client of this workspace. Raises ValueError if it could be that of a
        client of another one."""
        if not self.name and client_id.startswith(f"{ROOT}/"):
            raise ValueError(f"a client id does not begin with {ROOT}/: {client_id[:80]!r}")
        return self.prefix + client_id


def _is_local(name: str) -> bool:
    return name != "" and not name.startswith("$")


DEFAULT: Final = Workspace()
"""All topics that are in no workspace."""
