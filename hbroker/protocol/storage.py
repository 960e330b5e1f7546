"""How decisions wait for the disk (§5.10).

A node saves what its next run must know: delegations, claims, subscriptions, wills. A record takes effect at
once. But packets that rely on it (COMMIT and DONE of a handover, SUBACK, WILLACK) wait until the record would
survive a loss of power. Records are counted, and `durable` shows how many of them are on the disk.
`AfterSync` keeps the actions that wait.

The messages that wait for sessions are in the core's store, if the node has one. DONE also waits until
everything that was given to the store before is stored.
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

__all__ = ["AfterSync", "EpochLimit", "RestoredState", "SavedSession", "SavedWill", "Storage"]

MOST_WAITING: Final = 65_536
"""The most actions that wait for the disk. A further one is not taken, and its cause must come again. The
same bound holds for the actions that follow waiting ones."""


@dataclass(frozen=True, slots=True)
class EpochLimit:
    """A limit that the clock of the root had not reached when the wall clock showed `saved_at`
    (`epoch_clock`). Both are in milliseconds since the Unix epoch."""

    limit: int
    saved_at: int


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A persistent session as it was (§6.4). Times are in microseconds since the Unix epoch.

    - `offline_since`: when it went offline; None: it had a link.
    - `rights`: the key of the rights of its client (§4.6).
    - `begun_by`, `begun_at`: as those of `session_table.Session`; `begun_at` is 0 without `begun_by`.
    """

    session: int
    client: str
    expiry_s: int
    queue_messages: int
    queue_bytes: int
    offline_since: int | None
    begun_by: int = 0
    begun_at: int = 0
    rights: int = 0


@dataclass(frozen=True, slots=True)
class SavedWill:
    """A will as it was (§6.6).

    - `publish`: the message, a serialised `Publish`.
    - `delay_s`: from the break to the publication, in seconds.
    - `due`: when it was to be published, in microseconds since the Unix epoch; None: its session had a link.
    """

    session: int
    publish: bytes
    delay_s: int
    due: int | None


@dataclass(slots=True)
class RestoredState:
    """What the last run knew.

    `claims`: the claims; None: no order has changed them. `sessions`: the persistent sessions by their ids.
    `wills`: the wills, if the node has a store.
    `has_lost_delegations`, `has_lost_subscriptions`: records of that kind were lost (§5.8, §5.9).
    `had_store`: it had a store, which is there, and intact as far as is known. `has_lost_sessions`:
    records of persistent sessions were lost. `is_same_boot`: its host has not started again since.
    `epoch_limit`: above all epochs, if the node was the root. `revoked`: the records of revoked tokens by the
    id of their authority, in order (§5.11). `damage`: the damage that was found. `torn`:
    how many bytes of each file were truncated, because they were being written when the last run ended.
    """

    delegations: list[Delegation] = field(default_factory=list)
    claims: list[str] | None = None
    subscriptions: list[Subscription] = field(default_factory=list)
    sessions: dict[int, SavedSession] = field(default_factory=dict)
    wills: list[SavedWill] = field(default_factory=list)
    has_lost_delegations: bool = False
    has_lost_subscriptions: bool = False
    epoch_limit: EpochLimit | None = None
    revoked: dict[bytes, list[bytes]] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    torn: dict[Path, int] = field(default_factory=dict)
    had_store: bool = False
    has_lost_sessions: bool = False
    is_same_boot: bool = False


class Storage:
    """The records of one node for its next run. This class keeps none: nothing waits for a disk, and nothing
    was lost. Its subclasses have files."""

    @property
    def written(self) -> int:
        """How many records were saved."""
        return 0

    @property
    def durable(self) -> int:
        """How many of the records, counted from the first, are on the disk."""
        return 0

    @property
    def is_failing(self) -> bool:
        """Whether the disk fails now. Records stay in memory, and are written once it works again."""
        return False

    def save_delegation(self, delegation: Delegation, ended: bool) -> None:
        """Saves a delegation that is about to be made or changed, or that has ended."""

    def save_epoch_limit(self, limit: EpochLimit) -> None:
        """Saves the next limit of the root's clock."""

    def save_claims(self, claims: Sequence[str]) -> None:
        """Saves the subtrees that the node claims from now on."""

    def save_subscription(self, subscription: Subscription, ended: bool) -> None:
        """Saves a subscription that was made or changed, or that has ended."""

    def save_session(self, session: SavedSession) -> None:
        """Saves a persistent session that was made, changed, or went offline or online."""

    def end_session(self, session: int) -> None:
        """Saves that a persistent session has ended."""

    def save_will(self, will: SavedWill) -> None:
        """Saves a will that was registered, or whose session has lost its link or has one again."""

    def end_will(self, session: int) -> None:
        """Saves that a session has no will any more."""

    def save_revoked(self, authority: bytes, record: bytes) -> None:
        """Saves a record of a revoked token (§5.11). `authority`: the id of the authority that signed it."""

    def end_revoked(self, authority: bytes, count: int) -> None:
        """Saves that an authority is not believed any more, of which `count` records were saved."""

    def clear_lost_delegations(self) -> None:
        """Saves that no delegation is unknown any more: each forgotten lease has ended, or its child has
        renewed (§5.9)."""

    def clear_lost_subscriptions(self) -> None:
        """Saves that no subscription is unknown any more: recovery from a damaged file is over (§5.8)."""


@dataclass(slots=True, eq=False)
class _PendingAction:
    """An action that waits until the record at `position` is on the disk, and until the core's store has what
    was given to it under the number `submission`. `link`: the link over which it replies; None: it replies
    over no link, or in no particular order. `followers`: the actions that follow it."""

    position: int
    submission: int
    run: Callable[[], object]
    link: int | None
    followers: list[Callable[[], object]] = field(default_factory=list)


class AfterSync:
    """Actions that wait until all earlier records are on the disk.

    There are two queues, each in order: actions that need the disk (`run_when_durable`), and replies, which
    do not wait while the disk fails (`send_reply`).

    `submit`: gives the core's store everything that it is to have so far, and returns the number of that
    submission. `stored`: the number of the last submission that is stored.
    """

    def __init__(
        self,
        storage: Storage,
        submit: Callable[[], int] = lambda: 0,
        stored: Callable[[], int] = lambda: 0,
    ) -> None:
        self._storage = storage
        self._submit = submit
        self._stored = stored
        self._durable_queue: deque[_PendingAction] = deque()
        self._reply_queue: deque[_PendingAction] = deque()
        self._last_reply: dict[int, _PendingAction] = {}
        """The last pending reply of each link."""
        self._followers = 0

    # Change

    def run_when_durable(self, action: Callable[[], object]) -> bool:
        """Runs the action once all records so far are on the disk, and the core's store has what it was given
        so far; at once, if that is so. False: too many actions wait."""
        return self._queue(self._durable_queue, action, None)

    def send_reply(self, link: int, action: Callable[[], object]) -> bool:
        """As `run_when_durable`, for an action that replies over a link. It does not wait while the disk
        fails."""
        return self._queue(self._reply_queue, action, link)

    def run_after_replies(self, link: int, action: Callable[[], object]) -> bool:
        """Runs the action after the pending replies of this link; at once, if there are none. False: too many
        actions wait."""
        last = self._last_reply.get(link)
        if last is None:
            action()
            return True
        if self._followers >= MOST_WAITING:
            return False
        last.followers.append(action)
        self._followers += 1
        return True

    def handle_timeout(self) -> None:
        """Runs all actions that need not wait any more."""
        for queue in (self._durable_queue, self._reply_queue):
            while self._is_due(queue):
                self._run(queue.popleft())

    # Read

    def poll_timeout(self) -> int | None:
        """0: `handle_timeout` is due. None: nothing waits, or everything waits for the disk."""
        return 0 if self._is_due(self._durable_queue) or self._is_due(self._reply_queue) else None

    @property
    def awaits_store(self) -> bool:
        """Whether an action waits for the core's store alone."""
        queue = self._durable_queue
        return bool(queue) and self.is_durable(queue[0].position) and not self._is_due(queue)

    def last_position(self) -> int:
        """The position of the last record; `is_durable` says when it is on the disk."""
        return self._storage.written

    def is_durable(self, position: int) -> bool:
        """Whether all records up to a position are on the disk."""
        return self._storage.durable >= position

    @property
    def is_failing(self) -> bool:
        """Whether the disk fails now."""
        return self._storage.is_failing

    def _queue(self, queue: deque[_PendingAction], run: Callable[[], object], link: int | None) -> bool:
        if len(queue) >= MOST_WAITING:
            return False
        submission = self._submit() if queue is self._durable_queue else 0
        pending = _PendingAction(self._storage.written, submission, run, link)
        if link is not None:
            self._last_reply[link] = pending
        queue.append(pending)
        self.handle_timeout()
        return True

    def _run(self, pending: _PendingAction) -> None:
        if pending.link is not None and self._last_reply[pending.link] is pending:
            del self._last_reply[pending.link]
        self._followers -= len(pending.followers)
        for run in (pending.run, *pending.followers):
            run()

    def _is_due(self, queue: deque[_PendingAction]) -> bool:
        if not queue:
            return False
        is_durable = self.is_durable(queue[0].position) and queue[0].submission <= self._stored()
        return is_durable or (self.is_failing and queue is self._reply_queue)
