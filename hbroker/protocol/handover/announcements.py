"""What subscribers are told when a subtree changes hands (§5.4), by turns.

A node may hold tens of thousands of subscriptions to one subtree. What is to be done for each of them takes
its turn with everything else: the first once the change is whole, the others after pauses, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from hbroker.protocol.packets import Cut
from hbroker.protocol.subscriptions.owner.store import Subscription

__all__ = ["Announcements", "Gone", "Move"]


@dataclass(frozen=True, slots=True)
class Gone:
    """A subtree went to another owner: where it is. `with_sessions`: as a handover gives it, with what waited
    for sessions."""

    cut: Cut
    with_sessions: bool


Move: TypeAlias = Gone | str
"""Where a subtree went, or the subtree that came here."""

PER_ITERATION: Final = 128
PAUSE: Final = 2_000
"""Between two turns, in microseconds."""


class Announcements:
    """`announce(subscription, move)` for each."""

    def __init__(self, announce: Callable[[Subscription, Move], None]) -> None:
        self._announce = announce
        self._waiting: deque[tuple[Subscription, Move]] = deque()
        self._due: int | None = None

    def add(self, subscriptions: Iterable[Subscription], move: Move) -> None:
        """To be announced after all that was added before: at the earliest when what moves has moved."""
        was_idle = not self._waiting
        self._waiting.extend((subscription, move) for subscription in subscriptions)
        if was_idle and self._waiting:
            self._due = 0

    def handle_timeout(self, now: int) -> None:
        """The next turn, where it is due."""
        if self._due is not None and now >= self._due:
            self._turn()
            self._due = now + PAUSE if self._waiting else None

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        return self._due

    def _turn(self) -> None:
        for _ in range(min(PER_ITERATION, len(self._waiting))):
            self._announce(*self._waiting.popleft())
