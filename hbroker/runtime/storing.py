"""The thread that writes what a node notes, so that its decisions never wait for a disk.

What is noted while one sync runs is written together, with the next: a storm of ten thousand subscriptions
takes as many syncs as fit into it, not ten thousand. While the disk fails it tries again each second.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from hbroker.runtime.logs import EventLog
from hbroker.runtime.memory import NodeMemory, Recalled
from hbroker.storage.store import Fault

__all__ = ["StoredNotes"]

ALIVE_S: Final = 1.0
"""How often the next run is told that this one lives, and how often a disk that fails is tried again."""
STOP_PATIENCE_S: Final = 2.0
"""How long the last notes may take to be written when the node ends."""


class StoredNotes:
    """The files of one node as its decisions see them (`hbroker.protocol.storage.Storage`).

    In the thread `tell()` is called whenever `durable`, `is_failing` or `fault` has changed, and
    `hindered(what)` when the disk begins to fail, and with an empty text when it works again.
    """

    def __init__(
        self, memory: NodeMemory, log: EventLog, hindered: Callable[[str], None] = lambda fault: None
    ) -> None:
        self._memory = memory
        self._hindered = hindered
        self._log = log
        self._tell: Callable[[], None] = lambda: None
        self._wanted = Event()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="storing", daemon=True)
        self._logged: Fault | None = None
        memory.changed = self._wanted.set

    # Change

    def recall(self) -> Recalled:
        """What the last run knew; what was wrong with its files is in the log. Raises OSError."""
        recalled = self._memory.recall()
        for path, size in recalled.torn.items():
            self._log.warning("state_file_torn", file=path, bytes_cut_off=size)
        for damage in recalled.damage:
            self._log.error(
                "state_file_damaged",
                file=damage.path,
                offset=damage.offset,
                bytes=damage.length,
                what=damage.what,
                kept_as=damage.kept,
            )
        return recalled

    def start(self, tell: Callable[[], None]) -> None:
        """Begins to write."""
        self._tell = tell
        self._thread.start()

    def stop(self) -> None:
        """Writes what was noted last, and ends."""
        self._stopping.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(STOP_PATIENCE_S)

    def know_delegations(self) -> None:
        """See `Storage`."""
        self._memory.know_delegations()

    def know_subscriptions(self) -> None:
        """See `Storage`."""
        self._memory.know_subscriptions()

    # Read

    @property
    def written(self) -> int:
        """See `Storage`."""
        return self._memory.written

    @property
    def durable(self) -> int:
        """See `Storage`."""
        return self._memory.durable

    @property
    def is_failing(self) -> bool:
        """See `Storage`."""
        return self._memory.fault is not None

    @property
    def fault(self) -> Fault | None:
        """What is wrong with the disk now."""
        return self._memory.fault or self._memory.hindrance

    # The thread's

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wanted.wait(ALIVE_S)
            if not self._wanted.is_set():
                self._memory.touch()
            self._wanted.clear()
            is_last = self._stopping.is_set()
            before = self._memory.durable, self.fault
            is_written = self._memory.flush()
            if (self._memory.durable, self.fault) != before:
                self._say()
                self._tell()
            if not is_written:  # A disk that fails is not tried again for every note.
                self._stopping.wait(ALIVE_S)
                self._wanted.set()
        self._memory.close()

    def _say(self) -> None:
        fault = self.fault
        if fault is not None and str(fault) != str(self._logged):
            self._log.error("storage_failed", file=fault.path, error=fault.error.strerror or str(fault.error))
        elif fault is None and self._logged is not None:
            self._log.info("storage_recovered", file=self._logged.path)
        if str(fault) != str(self._logged):
            self._hindered("" if fault is None else str(fault))
        self._logged = fault
