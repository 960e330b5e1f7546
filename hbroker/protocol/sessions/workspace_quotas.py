"""What workspaces use at a node: sessions and subscriptions, and the quotas of these (docs/workspaces.md).

A subscription is of the workspace in whose subtree its filter lies. One over several workspaces is of none. A
session counts once in each workspace in which it has a subscription. What comes with a handover, or was
stored before, counts and is never refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hbroker.config import WorkspaceQuotas
from hbroker.workspace import name_of

__all__ = ["QuotaCounts"]


@dataclass(slots=True)
class _Counts:
    """What one workspace uses. `by_session`: the number of subscriptions of each session that has some."""

    quotas: WorkspaceQuotas
    subscriptions: int = 0
    by_session: Counter[int] = field(default_factory=Counter)


class QuotaCounts:
    """The sessions and subscriptions of each workspace that has quotas."""

    def __init__(self, quotas: Sequence[WorkspaceQuotas] = ()) -> None:
        self._by_name = {each.name: _Counts(each) for each in quotas}

    def add(self, session: int, filter: str) -> None:
        """Counts a subscription, even beyond the quotas."""
        counts = self._of(filter)
        if counts is not None:
            counts.subscriptions += 1
            counts.by_session[session] += 1

    def remove(self, session: int, filter: str) -> None:
        """Counts a subscription less, which was counted."""
        counts = self._of(filter)
        if counts is not None:
            counts.subscriptions -= 1
            counts.by_session[session] -= 1
            if not counts.by_session[session]:
                del counts.by_session[session]

    def has_room(self, session: int, filter: str) -> bool:
        """Whether another subscription of a session stays within the quotas."""
        counts = self._of(filter)
        if counts is None:
            return True
        quotas, sessions = counts.quotas, counts.by_session
        if quotas.sessions and session not in sessions and len(sessions) >= quotas.sessions:
            return False
        return not quotas.subscriptions or counts.subscriptions < quotas.subscriptions

    def usage(self) -> dict[str, dict[str, int]]:
        """What each workspace with quotas uses, and its quotas (0: none), by its name."""
        return {
            name: {
                "sessions": len(counts.by_session),
                "most_sessions": counts.quotas.sessions,
                "subscriptions": counts.subscriptions,
                "most_subscriptions": counts.quotas.subscriptions,
                "most_messages_per_second": counts.quotas.messages_per_second,
            }
            for name, counts in self._by_name.items()
        }

    def _of(self, filter: str) -> _Counts | None:
        """What the workspace of a filter uses; None: it has no quotas."""
        return self._by_name.get(name_of(filter)) if self._by_name else None
