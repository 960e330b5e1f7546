"""The threads that write the state files of a node, so that no decision waits for a disk.

- The first thread writes and syncs. Everything that is noted during one sync is written together, with the
  next one. So ten thousand subscriptions at once cost a few syncs. While the disk fails, the thread tries
  again each second.
- The second thread writes each second that this run is alive, even while the first one hangs in a call.
- The third thread watches the other two, and calls no disk but that of the log. A call that takes longer than
  `OVERDUE_S` counts as failed until it returns.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Final, TypeVar

from hbroker.protocol.storage import RestoredState
from hbroker.runtime.logs import EventLog
from hbroker.runtime.node.state_files import NodeStateFiles
from hbroker.storage.store import OVERDUE_S, Fault

__all__ = ["StateWriter"]

ALIVE_S: Final = 1.0
"""Seconds between two checkpoints, and between two tries while the disk fails."""
STOP_TIMEOUT_S: Final = 2.0
"""Seconds that the last notes may take to be written, when the node ends."""

T = TypeVar("T")


class StateWriter:
    """Writes the state files of one node.

    Two callbacks are called in a thread of the writer: `on_change()` when `durable` or `is_failing` has
    changed, and `on_disk_fault(what)` when the disk begins to fail, and with an empty text once it works
    again.
    """

    def __init__(
        self,
        state_files: NodeStateFiles,
        log: EventLog,
        on_disk_fault: Callable[[str], None] = lambda fault: None,
    ) -> None:
        self._state_files = state_files
        self._on_disk_fault = on_disk_fault
        self._log = log
        self._on_change: Callable[[], None] = lambda: None
        self._flush_requested = Event()
        self._stopping = Event()
        self._changed = Event()
        """Set when the watching thread has something to report."""
        self._has_ended = Event()
        """Set when the last notes are written, or their time is over."""
        self._flushing, self._saving_checkpoint = _WatchedCall(), _WatchedCall()
        self._writer = Thread(target=self._write, name="storing", daemon=True)
        self._others = (
            Thread(target=self._stay_alive, name="storing-alive", daemon=True),
            Thread(target=self._watch, name="storing-watch", daemon=True),
        )
        self._logged: Fault | None = None
        state_files.changed = self._flush_requested.set
        state_files.is_overdue = lambda: self._flushing.is_overdue

    # Change

    def load(self) -> RestoredState:
        """Returns what the last run knew, and logs the damage of its files. Raises OSError."""
        restored = self._state_files.load()
        for path, size in restored.torn.items():
            self._log.warning("state_file_torn", file=path, bytes_cut_off=size)
        for damage in restored.damage:
            self._log.error(
                "state_file_damaged",
                file=damage.path,
                offset=damage.offset,
                bytes=damage.length,
                what=damage.problem,
                kept_as=damage.kept,
            )
        return restored

    def start(self, on_change: Callable[[], None]) -> None:
        """Starts the threads. `on_change` is called as the class says."""
        self._on_change = on_change
        for thread in (self._writer, *self._others):
            thread.start()

    def stop(self) -> None:
        """Writes the last notes, and stops the threads."""
        until = time.monotonic() + STOP_TIMEOUT_S
        self._stopping.set()
        self._flush_requested.set()
        _join(self._writer, until)
        self._has_ended.set()
        self._changed.set()
        for thread in self._others:
            _join(thread, until)

    # Read

    @property
    def fault(self) -> Fault | None:
        """The present fault of the disk; None: there is none."""
        known = self._state_files.store.fault or self._state_files.store.minor_fault
        if known is None and (self._flushing.is_overdue or self._saving_checkpoint.is_overdue):
            return Fault(self._state_files.path, OSError(errno.ETIMEDOUT, f"no answer for {OVERDUE_S:g} s"))
        return known

    # In the threads

    def _write(self) -> None:
        is_last = False
        while not is_last:
            self._flush_requested.wait(ALIVE_S)
            self._flush_requested.clear()
            is_last = self._stopping.is_set()
            before = self._state_files.store.durable, self.fault
            is_written = self._flushing.of(self._state_files.store.flush)
            if (self._state_files.store.durable, self.fault) != before:
                self._on_change()
                self._changed.set()
            if not is_written:  # A failing disk is not tried again for each note.
                self._stopping.wait(ALIVE_S)
                self._flush_requested.set()
        self._state_files.store.close()

    def _stay_alive(self) -> None:
        while not self._stopping.wait(ALIVE_S):
            self._saving_checkpoint.of(self._state_files.store.save_checkpoint)

    def _watch(self) -> None:
        was_failing = is_last = False
        while not is_last:
            self._changed.wait(ALIVE_S)
            self._changed.clear()
            is_last = self._has_ended.is_set()
            if self._state_files.is_failing is not was_failing:
                was_failing = not was_failing
                self._on_change()
            self._log_fault()

    def _log_fault(self) -> None:
        fault = self.fault
        if fault is not None and str(fault) != str(self._logged):
            self._log.error("storage_failed", file=fault.path, error=fault.error.strerror or str(fault.error))
        elif fault is None and self._logged is not None:
            self._log.info("storage_recovered", file=self._logged.path)
        if str(fault) != str(self._logged):
            self._on_disk_fault("" if fault is None else str(fault))
        self._logged = fault


class _WatchedCall:
    """Calls that may hang."""

    def __init__(self) -> None:
        self._since: float | None = None

    def of(self, call: Callable[[], T]) -> T:
        """Calls `call`, and returns its result."""
        self._since = time.monotonic()
        try:
            return call()
        finally:
            self._since = None

    @property
    def is_overdue(self) -> bool:
        """Whether the present call has not returned within `OVERDUE_S`."""
        since = self._since
        return since is not None and time.monotonic() - since > OVERDUE_S


def _join(thread: Thread, until: float) -> None:
    if thread.is_alive():
        thread.join(max(0.0, until - time.monotonic()))
