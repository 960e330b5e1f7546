"""The files of one simulated node, over all its runs.

They are the real files of a node (`hbroker.runtime.node.state_files`), on a disk that may be full, fail, or
lose power. If the node has a store, its messages are on another such disk (`_native.StoreDisk`).

What a run notes is written and synced a while later, and once a second the run notes that it is
alive, as the threads of a real process do (`hbroker.runtime.node.writer_threads`). A run that is killed loses
what it had not written. A loss of power also loses what was not synced.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from hbroker._native import StoreDisk
from hbroker.config import NodeSettings
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.protocol.storage import EpochLimit, SavedSession, SavedWill, Storage
from hbroker.protocol.timers import earliest
from hbroker.runtime.node.state_files import NodeStateFiles
from hbroker.storage.checkpoint import Instant
from hbroker.storage.store import OVERDUE_S

from .disk import PowerLost, SimulatedDisk

if TYPE_CHECKING:
    from ..world import World

__all__ = ["NodeFiles", "SimulatedStorage"]

SECOND: Final = 1_000_000
ALIVE: Final = SECOND
OVERDUE: Final = round(OVERDUE_S * SECOND)
FOLDER: Final = Path("/")


class NodeFiles:
    """The files of one node. `sync_us`: about how long it takes until a note is on the disk; 0: no time."""

    def __init__(self, world: World, settings: NodeSettings, sync_us: int = 0) -> None:
        self.world = world
        self.sync_us = sync_us
        self.random = Random(world.random.getrandbits(64))
        self.disk = SimulatedDisk(self.random)
        self.store_disk = StoreDisk()
        self.has_failed = False
        """Whether the disk was ever full or failed."""
        self.has_store = False
        """Whether a run has had a store on the disk."""
        self.fails_to_sync = False
        """Whether syncs of the store fail. Then no run can begin."""
        self.is_flipped = False
        """Whether a bit of the store was flipped since the last run began."""
        self.known_damage: set[str] = set()
        """What the earlier runs found damaged in the store. It stays there until its segment is removed."""
        self._settings = settings
        self._path = FOLDER / f"{settings.name}.cuts"
        self._boots = 0

    def open(self) -> NodeStateFiles:
        """Opens the files for another run."""
        return NodeStateFiles(
            self._path,
            self._settings.subtrees,
            disk=self.disk,
            new_id=lambda: self.random.getrandbits(63) + 1,
            instant=lambda: Instant(self._boots.to_bytes(16, "big"), self.world.now),
        )

    def forget(self) -> None:
        """Removes all files except that of the claims."""
        self.mend()
        self.store_disk = StoreDisk()
        self.known_damage.clear()
        self.has_store = False
        for path in self.disk.paths():
            if path.suffix != ".claims":
                self.disk.remove(path)
        self.disk.sync_folder(FOLDER)

    def lose_power(self) -> None:
        """The machine starts again with what was on the disk."""
        self.disk.crash()
        if self._settings.has_store:
            self.store_disk.lose_power(self.random.getrandbits(64))
        self._boots += 1

    def mend(self) -> None:
        """The disk has room again, and no write fails."""
        self.disk.free_bytes = self.disk.error = None
        self.store_disk.set_space(None)
        self.store_disk.fail_to_sync(False)
        self.fails_to_sync = False

    def flip_bit(self) -> None:
        """Changes a bit of the store."""
        self.is_flipped = self.store_disk.flip(self.random.getrandbits(64))

    def fail_to_sync(self) -> None:
        """The disk takes what is stored, and all syncs of it fail."""
        self.fails_to_sync = True
        self.store_disk.fail_to_sync(True)

    def fill(self, free_bytes: int) -> None:
        """The disk has only this much room left."""
        self.disk.free_bytes = free_bytes
        self.store_disk.set_space(0)
        self.has_failed = True

    def fail(self) -> None:
        """All writes fail with EIO."""
        self.disk.error = errno.EIO
        self.has_failed = True


class SimulatedStorage(Storage):
    """What one run notes.

    `synced` is called when more is on the disk, or when the disk begins to fail. `recorded` is called after
    each note.
    """

    def __init__(self, files: NodeFiles, synced: Callable[[], None], recorded: Callable[[], None]) -> None:
        self._files = files
        self._state_files = files.open()
        self._synced = synced
        self._recorded = recorded
        self.restored = self._state_files.load()
        """What the run before noted."""
        self.delegations = {found.subtree: replace(found) for found in self.restored.delegations}
        """The delegations as they were noted last, by subtree."""
        self.subscriptions = {(s.session, s.key): s for s in self.restored.subscriptions}
        """The subscriptions as they were noted last."""
        self.claims: Sequence[str] | None = self.restored.claims
        """The claims as they were noted last; None: they are those of the settings."""
        self._flush_at: int | None = None
        """When the notes will be on the disk, in the world's time; None: no note waits."""
        self._overdue_at: int | None = None
        """When the present sync counts as failed."""
        self._alive_at: int | None = files.world.now + ALIVE
        """When to note that this run is alive."""
        self._state_files.changed = self._changed

    # Change

    def handle_timeout(self) -> None:
        """Notes that the run is alive, and writes and syncs what is due."""
        now = self._files.world.now
        if self._alive_at is not None and now >= self._alive_at:
            self._alive_at = now + ALIVE
            self._state_files.store.save_checkpoint()
        if self._flush_at is not None and now >= self._flush_at:
            self._flush()
        if self.is_failing:
            self._synced()

    def die(self) -> None:
        """Ends the run: before it has written its notes, before it has synced them, or just after."""
        disk, how = self._files.disk, self._files.random.randrange(3)
        disk.loses_power = how == 1
        with suppress(PowerLost):
            if how:
                self._state_files.store.flush()
        disk.loses_power, self._flush_at, self._alive_at = False, None, None

    def save_delegation(self, delegation: Delegation, ended: bool) -> None:
        if ended:
            self.delegations.pop(delegation.subtree, None)
        else:
            self.delegations[delegation.subtree] = replace(delegation)
        self._state_files.save_delegation(delegation, ended)
        self._recorded()

    def save_epoch_limit(self, limit: EpochLimit) -> None:
        self._state_files.save_epoch_limit(limit)
        self._recorded()

    def save_claims(self, claims: Sequence[str]) -> None:
        self.claims = list(claims)
        self._state_files.save_claims(claims)
        self._recorded()

    def save_subscription(self, subscription: Subscription, ended: bool) -> None:
        if ended:
            self.subscriptions.pop((subscription.session, subscription.key), None)
        else:
            self.subscriptions[subscription.session, subscription.key] = subscription
        self._state_files.save_subscription(subscription, ended)
        self._recorded()

    def save_session(self, session: SavedSession) -> None:
        self._state_files.save_session(session)
        self._recorded()

    def end_session(self, session: int) -> None:
        self._state_files.end_session(session)
        self._recorded()

    def save_will(self, will: SavedWill) -> None:
        self._state_files.save_will(will)
        self._recorded()

    def end_will(self, session: int) -> None:
        self._state_files.end_will(session)
        self._recorded()

    def save_revoked(self, authority: bytes, record: bytes) -> None:
        self._state_files.save_revoked(authority, record)
        self._recorded()

    def end_revoked(self, authority: bytes, count: int) -> None:
        self._state_files.end_revoked(authority, count)

    def clear_lost_delegations(self) -> None:
        self._state_files.clear_lost_delegations()

    def clear_lost_subscriptions(self) -> None:
        self._state_files.clear_lost_subscriptions()

    # Read

    @property
    def written(self) -> int:
        return self._state_files.written

    @property
    def durable(self) -> int:
        return self._state_files.durable

    @property
    def is_failing(self) -> bool:
        is_overdue = self._overdue_at is not None and self._files.world.now >= self._overdue_at
        return self._state_files.store.fault is not None or is_overdue

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due, in the world's time; None: never."""
        is_running = self._overdue_at is not None and self._files.world.now < self._overdue_at
        return earliest(self._flush_at, self._alive_at, self._overdue_at if is_running else None)

    def _changed(self) -> None:
        if self._flush_at is not None:
            return
        sync, now = self._files.sync_us, self._files.world.now
        if sync:
            self._flush_at = now + self._files.random.randint(sync // 2, 2 * sync)
            self._overdue_at = now + OVERDUE
        else:
            self._flush()

    def _flush(self) -> None:
        self._flush_at = None if self._state_files.store.flush() else self._files.world.now + SECOND
        self._overdue_at = None
        self._synced()
