"""What the decisions of a process know that its telemetry tells."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Facts"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the decisions know at the end of an interval. `parent`: None at the root, and as long as it is not
    known. `subtrees`: what is held, less all of `$SYS`."""

    address: str
    parent: str | None = None
    subtrees: tuple[str, ...] = ()
