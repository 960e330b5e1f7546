"""A node's state files while the disk is full, fails, or does not answer: the run goes on, and the next
run knows how long it lived."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbroker.protocol import timers
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.runtime.logs import EventLog
from hbroker.runtime.node import writer_threads
from hbroker.runtime.node.state_files import NodeStateFiles
from hbroker.runtime.node.writer_threads import StateWriter
from hbroker.storage.checkpoint import Instant
from hbroker.storage.disk import Disk, File
from tests.waiting import until

PATIENCE = 20.0
EARLY, LATE = (Subscription(number, ("127.0.0.1", number), "a/#", 1) for number in (7, 8))


class BadDisk(Disk):
    """A disk that can be full, whose sync can hang, or that refuses the checkpoint. A full disk refuses
    writes that lengthen a file, and accepts writes in place."""

    def __init__(self) -> None:
        self.is_full = False
        self.takes_checkpoint = True
        self.syncs = threading.Event()
        """Whether a sync returns."""
        self.syncs.set()

    def open(self, path: Path) -> File:
        return _BadFile(super().open(path), self)

    def create(self, path: Path) -> File:
        self.fail_if(self.is_full, errno.ENOSPC)
        return _BadFile(super().create(path), self)

    def overwrite(self, path: Path, data: bytes) -> None:
        self.fail_if(not self.takes_checkpoint, errno.EIO)
        super().overwrite(path, data)

    def fail_if(self, fails: bool, error: int) -> None:
        if fails:
            raise OSError(error, "the disk is bad")


class _BadFile:
    def __init__(self, file: File, disk: BadDisk) -> None:
        self._file, self._disk = file, disk
        self.truncate, self.close = file.truncate, file.close

    def append(self, data: bytes) -> int:
        self._disk.fail_if(self._disk.is_full, errno.ENOSPC)
        return self._file.append(data)

    def sync(self) -> None:
        assert self._disk.syncs.wait(PATIENCE)
        self._file.sync()


class Run:
    """A run of a node with its files. `told`: the last fault that was reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = BadDisk()
        self.now = 1_000_000
        self.told = ""
        self.memory = self.open()
        self.notes = StateWriter(self.memory, EventLog("node"), self._note_fault)
        self.notes.load()
        self.notes.start(lambda: None)
        self.note(EARLY)
        self.await_that(lambda: self.memory.durable == 1)

    def open(self) -> NodeStateFiles:
        """The state files, for this run or the next."""
        path = self.folder / "n.cuts"
        return NodeStateFiles(path, ["a"], disk=self.disk, instant=lambda: Instant(bytes(16), self.now))

    def note(self, subscription: Subscription) -> None:
        self.memory.save_subscription(subscription, False)

    def await_that(self, condition: Callable[[], bool]) -> None:
        until(condition, "it has come so far", PATIENCE)

    def live_for(self, microseconds: int) -> None:
        """Advances the clock, and waits until this run has written its checkpoint."""
        mark = self.folder / "n.cuts.checkpoint"
        before = mark.read_bytes()
        self.now += microseconds
        self.await_that(lambda: mark.read_bytes() != before)

    def sessions_of_the_next_run(self) -> list[int]:
        """Kills this run. Returns the sessions that the next run waits for."""
        return [subscription.session for subscription in self.open().load().subscriptions]

    def _note_fault(self, fault: str) -> None:
        self.told = fault


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(writer_threads, "ALIVE_S", 0.01)
    run = Run(tmp_path)
    yield run
    run.disk.syncs.set()
    run.notes.stop()


def test_the_checkpoint_is_written_while_the_disk_is_full(run: Run) -> None:
    run.disk.is_full = True
    run.note(LATE)
    run.await_that(lambda: "bad" in run.told)
    run.live_for(60 * timers.SECOND)
    assert run.sessions_of_the_next_run() == [7]


def test_the_checkpoint_is_written_while_a_sync_hangs(run: Run) -> None:
    run.disk.syncs.clear()
    run.note(LATE)
    run.live_for(60 * timers.SECOND)
    assert 7 in run.sessions_of_the_next_run()


def test_a_sync_that_does_not_return_counts_as_failed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_threads, "OVERDUE_S", 0.05)
    run.disk.syncs.clear()
    run.note(LATE)
    run.await_that(lambda: run.memory.is_failing)
    run.await_that(lambda: "no answer for" in run.told)
    assert run.memory.durable == 1
    run.disk.syncs.set()
    run.await_that(lambda: run.memory.durable == 2 and not run.told)
    assert not run.memory.is_failing


def test_a_failing_checkpoint_is_reported_until_it_succeeds(run: Run) -> None:
    run.disk.takes_checkpoint = False
    run.await_that(lambda: "checkpoint" in run.told)
    run.note(LATE)
    run.await_that(lambda: run.memory.durable == 2)
    assert "checkpoint" in str(run.notes.fault)
    assert not run.memory.is_failing, "what is noted is on the disk"
    run.disk.takes_checkpoint = True
    run.await_that(lambda: not run.told)
