"""What a node is told of the disk that its promises rest on.

A node notes what its next run must know: the subtrees that it delegated, what orders changed, who had
subscribed. That takes effect at once. But what it says to others on the strength of it (COMMIT and DONE of a
handover, SUBACK) waits until the note outlives a loss of power. So notes are counted, and the count that is
on the disk rises later.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Storage", "Unstored"]


class Storage(Protocol):
    """The files of one node, as its decisions see them."""

    @property
    def written(self) -> int:
        """How many notes were taken."""

    @property
    def durable(self) -> int:
        """How many of them are on the disk: all before that, too."""

    @property
    def is_failing(self) -> bool:
        """Whether the disk takes nothing now. What was noted is kept, and is written as soon as it does."""

    def know_delegations(self) -> None:
        """Delegations that were lost from the file matter no longer."""

    def know_subscriptions(self) -> None:
        """Subscriptions that were lost from the file matter no longer."""


class Unstored:
    """Of a node without files: nothing that it says rests on a disk."""

    written = 0
    durable = 0
    is_failing = False

    def know_delegations(self) -> None:
        """Nothing was lost."""

    def know_subscriptions(self) -> None:
        """Nothing was lost."""
