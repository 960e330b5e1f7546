"""How decisions wait for the disk (§5.10).

A node notes what its next run must know: delegations, claims, subscriptions. A note takes effect at once. But
packets that rely on it (COMMIT and DONE of a handover, SUBACK) wait until the note would survive a loss of
power. Notes are counted, and `durable` shows how many of them are on the disk. `AfterSync` keeps the actions
that wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from hbroker.protocol.ownership.jurisdiction import Delegation
    from hbroker.protocol.sessions.subscription_store import Subscription
    from hbroker.storage.record_file import Damage

__all__ = ["AfterSync", "Recalled", "Storage"]

MOST_WAITING: Final = 65_536
"""The most actions that wait for the disk. A further one is not taken, and its cause must come again. The
same bound holds for the actions that follow waiting ones."""


@dataclass(slots=True)
class Recalled:
    """What the last run knew.

    `requested_subtrees`: the claims; None: no order has changed them. `away`: the sessions that were offline.
    `forgets_delegations`, `forgets_subscriptions`: records of that kind were lost (§5.8, §5.9). `damage`: the
    damage that was found. `torn`: how many bytes of each file were truncated, because they were being written
    when the last run ended.
    """

    delegations: list[Delegation] = field(default_factory=list)
    requested_subtrees: list[str] | None = None
    subscriptions: list[Subscription] = field(default_factory=list)
    away: set[int] = field(default_factory=set)
    forgets_delegations: bool = False
    forgets_subscriptions: bool = False
    damage: list[Damage] = field(default_factory=list)
    torn: dict[Path, int] = field(default_factory=dict)


class Storage:
    """The notes of one node for its next run. This class keeps none: nothing waits for a disk, and nothing
    was lost. Its subclasses have files."""

    @property
    def written(self) -> int:
        """How many notes were taken."""
        return 0

    @property
    def durable(self) -> int:
        """How many of the notes, counted from the first, are on the disk."""
        return 0

    @property
    def is_failing(self) -> bool:
        """Whether the disk fails now. Notes stay in memory, and are written once it works again."""
        return False

    def note_delegation(self, delegation: Delegation, ended: bool) -> None:
        """Notes a delegation that is about to be made or changed, or that has ended."""

    def note_requested_subtrees(self, requested_subtrees: Sequence[str]) -> None:
        """Notes the subtrees that the node claims from now on."""

    def note_subscription(self, subscription: Subscription, ended: bool) -> None:
        """Notes a subscription that was made or changed, or that has ended."""

    def note_away(self, session: int, is_away: bool) -> None:
        """Notes that a session is offline, or that it has a link again."""

    def know_delegations(self) -> None:
        """Notes that no delegation is unknown any more: each forgotten lease has ended, or its child has
        renewed (§5.9)."""

    def know_subscriptions(self) -> None:
        """Notes that no subscription is unknown any more: recovery from a damaged file is over (§5.8)."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """An action that waits. `link`: the link over which it answers; None: it answers over no link, or in no
    particular order. `followers`: the actions that follow it."""

    mark: int
    act: Callable[[], object]
    link: int | None
    followers: list[Callable[[], object]] = field(default_factory=list)


class AfterSync:
    """Actions that wait until all earlier notes are on the disk.

    There are two queues, each in order: actions that need the disk (`do`), and actions that do not wait while
    the disk fails (`answer`).
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._needing: deque[_Waiting] = deque()
        self._others: deque[_Waiting] = deque()
        self._last: dict[int, _Waiting] = {}
        """The last action of each link that answers over it."""
        self._followers = 0

    # Change

    def do(self, act: Callable[[], object]) -> bool:
        """Runs the action once all notes so far are on the disk; at once, if they are. False: too many
        actions wait."""
        return self._wait(self._needing, act, None)

    def answer(self, link: int, act: Callable[[], object]) -> bool:
        """As `do`, for an action that answers over a link. It does not wait while the disk fails."""
        return self._wait(self._others, act, link)

    def follow(self, link: int, act: Callable[[], object]) -> bool:
        """Runs the action after the answers that wait for this link; at once, if there are none. False: too
        many actions wait."""
        last = self._last.get(link)
        if last is None:
            act()
            return True
        if self._followers >= MOST_WAITING:
            return False
        last.followers.append(act)
        self._followers += 1
        return True

    def handle_timeout(self) -> None:
        """Runs all actions that need not wait any more."""
        for waiting in (self._needing, self._others):
            while self._is_due(waiting):
                self._end(waiting.popleft())

    # Read

    def poll_timeout(self) -> int | None:
        """0: `handle_timeout` is due. None: nothing waits, or everything waits for the disk."""
        return 0 if self._is_due(self._needing) or self._is_due(self._others) else None

    def mark(self) -> int:
        """The mark of the notes so far; `has` says when they are on the disk."""
        return self._storage.written

    def has(self, mark: int) -> bool:
        """Whether all notes up to a mark are on the disk."""
        return self._storage.durable >= mark

    @property
    def is_failing(self) -> bool:
        """Whether the disk fails now."""
        return self._storage.is_failing

    def _wait(self, waiting: deque[_Waiting], act: Callable[[], object], link: int | None) -> bool:
        if len(waiting) >= MOST_WAITING:
            return False
        action = _Waiting(self._storage.written, act, link)
        if link is not None:
            self._last[link] = action
        waiting.append(action)
        self.handle_timeout()
        return True

    def _end(self, action: _Waiting) -> None:
        if action.link is not None and self._last[action.link] is action:
            del self._last[action.link]
        self._followers -= len(action.followers)
        for act in (action.act, *action.followers):
            act()

    def _is_due(self, waiting: deque[_Waiting]) -> bool:
        if not waiting:
            return False
        return self.has(waiting[0].mark) or (self.is_failing and waiting is self._others)
