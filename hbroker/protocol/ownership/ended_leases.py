"""Subtrees that this node served until its lease ended, and has not served since (§5.6).

The messages that wait for persistent sessions in such a subtree were acknowledged, and no other node has
them. So they stay, with the subscriptions of these sessions, for as long as the sessions live. This node
takes no new messages of the subtree; the next owner queues those that it acknowledges itself. If this node is
handed the subtree again, it puts what it is handed behind what it has.

If the subtree comes back without a part, because another node has been granted the part, then the part stays
here as an ended lease.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hbroker._native import filter_touches
from hbroker.protocol.ownership.jurisdiction import Delegation, Jurisdiction
from hbroker.subtree import is_within

__all__ = ["EndedLeases"]


@dataclass(frozen=True, slots=True)
class _EndedLease:
    """`at`: when the lease ended, in microseconds. `cuts`: the cuts below the subtree at that time."""

    at: int
    cuts: frozenset[str]


class EndedLeases:
    """The ended leases of one node."""

    def __init__(self, jurisdiction: Jurisdiction) -> None:
        self._jurisdiction = jurisdiction
        self._by_subtree: dict[str, _EndedLease] = {}

    # Change

    def begin(self, now: int, subtree: str) -> None:
        """The lease of a subtree ended."""
        cuts = frozenset(delegation.subtree for delegation in self._jurisdiction.cuts_below(subtree))
        self._by_subtree.setdefault(subtree, _EndedLease(now, cuts))

    def end(self, subtree: str) -> None:
        """This node is about to serve a subtree, and knows its cuts."""
        for ended_subtree in [part for part in self._by_subtree if is_within(part, subtree)]:
            if isinstance(self._jurisdiction.lookup(ended_subtree), Delegation):
                continue
            ended_lease = self._by_subtree.pop(ended_subtree)
            for delegation in self._jurisdiction.cuts_below(ended_subtree):
                if not any(is_within(delegation.subtree, cut) for cut in ended_lease.cuts):
                    self._by_subtree.setdefault(delegation.subtree, _EndedLease(ended_lease.at, frozenset()))

    def prune(self, is_empty: Callable[[str], bool]) -> None:
        """Removes subtrees for which `is_empty` says that nothing is left here."""
        for subtree in [subtree for subtree in self._by_subtree if is_empty(subtree)]:
            del self._by_subtree[subtree]

    # Read

    def latest(self, subtree: str) -> int | None:
        """When the last lease of a subtree in, or around, this subtree ended, in microseconds; None: none
        has."""
        ends = [
            ended_lease.at
            for ended_subtree, ended_lease in self._by_subtree.items()
            if is_within(ended_subtree, subtree) or is_within(subtree, ended_subtree)
        ]
        return max(ends, default=None)

    def touches(self, filter: str) -> bool:
        """Whether a filter can match topics in one of these subtrees."""
        return any(filter_touches(filter, subtree) for subtree in self._by_subtree)

    def __contains__(self, subtree: str) -> bool:
        return subtree in self._by_subtree

    def __len__(self) -> int:
        return len(self._by_subtree)
