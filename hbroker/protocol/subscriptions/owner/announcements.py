"""Informs subscribers that a subtree has moved (§5.4), a few in each round.

A node may have tens of thousands of subscriptions to one subtree. The first round follows when the change is
complete, and each other round after a pause, in order. So the node's other work goes on in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from hbroker.protocol.packets import Cut
from hbroker.protocol.sessions.subscription_store import Subscription

__all__ = ["Announcements", "Gone", "Move"]


@dataclass(frozen=True, slots=True)
class Gone:
    """A subtree went to another owner, which `cut` names. `with_sessions`: by a handover, with the queues of
    the sessions."""

    cut: Cut
    with_sessions: bool


Move: TypeAlias = Gone | str
"""A subtree that went away, or the subtree that came here."""

PER_ITERATION: Final = 128
PAUSE: Final = 2_000
"""Microseconds between two rounds."""


class Announcements:
    """Calls `announce(subscription, move)` for each."""

    def __init__(self, announce: Callable[[Subscription, Move], None]) -> None:
        self._announce = announce
        self._waiting: deque[tuple[Subscription, Move]] = deque()
        self._due: int | None = None

    def add(self, subscriptions: Iterable[Subscription], move: Move) -> None:
        """Adds announcements behind all earlier ones. The first is made in a later call, when the change is
        complete."""
        was_idle = not self._waiting
        self._waiting.extend((subscription, move) for subscription in subscriptions)
        if was_idle and self._waiting:
            self._due = 0

    def handle_timeout(self, now: int) -> None:
        """Runs the next round, if it is due."""
        if self._due is not None and now >= self._due:
            self._turn()
            self._due = now + PAUSE if self._waiting else None

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: nothing waits."""
        return self._due

    def _turn(self) -> None:
        for _ in range(min(PER_ITERATION, len(self._waiting))):
            self._announce(*self._waiting.popleft())
