"""The facts in the telemetry of a process that its decisions know."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Facts"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decisions know at the end of an interval. `parent`: the parent's name; None: at the root, or
    unknown yet. `subtrees`: the subtrees that the node serves, without those below `$SYS`."""

    address: str
    parent: str | None = None
    subtrees: tuple[str, ...] = ()
