"""The thread that records telemetry.

At the end of each interval the event loop signals the thread, with the facts that the decisions know. The
thread then takes the counts from the native core, and gives them to the journal. If the thread is late, for
instance because the disk is slow, the interval is longer, and `seconds` shows it. Nothing is counted twice,
and nothing is omitted.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from hbroker.config import TelemetrySettings
from hbroker.runtime.logs import EventLog
from hbroker.runtime.telemetry.hottest_topics import HottestTopics
from hbroker.runtime.telemetry.interval import IntervalClock

if TYPE_CHECKING:
    from hbroker._native import Load
    from hbroker.runtime.telemetry.interval import Facts

__all__ = ["Recorder", "preload"]

STOP_TIMEOUT: Final = 2.0
"""Seconds that the last file may take, when the process ends."""


def preload() -> None:
    """Loads Arrow, once for this process and all processes that it forks. This starts no thread. Arrow then
    uses the system's allocator, which keeps less memory than its own. Raises ImportError."""
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    import pyarrow as pa

    from hbroker.runtime.telemetry import journal  # noqa: F401

    pa.set_memory_pool(pa.system_memory_pool())


class Recorder:
    """Records the load of one process, if its settings say so. `name`, `role`: as in `rows.Identity`.
    `take_counters`: returns what the core counted since the last call."""

    def __init__(
        self, settings: TelemetrySettings, name: str, role: str, take_counters: Callable[[], Load | None]
    ) -> None:
        self._settings = settings
        self._owner = (name, role)
        self._take_counters = take_counters
        self._log = EventLog("telemetry")
        self._watch = IntervalClock()
        self._get_facts: Callable[[], Facts] | None = None
        self._facts: Facts | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.hottest_topics = HottestTopics()
        """The topics with the most messages in the last seconds; none if telemetry is off."""
        self._due = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    # In the event loop

    def start(self, get_facts: Callable[[], Facts]) -> None:
        """Begins the first interval. `get_facts` is called at the end of each interval, in this event
        loop."""
        if not self._settings.is_on:
            return
        self._get_facts = get_facts
        self._thread.start()
        loop = asyncio.get_running_loop()
        self._plan(loop, loop.time())

    def stop(self) -> None:
        """Ends the last interval, and waits until it is written. To be called after the core has shut
        down."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._is_over = True
        self._end_interval()
        self._thread.join(STOP_TIMEOUT)

    def _plan(self, loop: asyncio.AbstractEventLoop, began: float) -> None:
        period = self._settings.interval
        passed = int((loop.time() - began) / period)
        self._timer = loop.call_at(began + (passed + 1) * period, self._tick, loop, began)

    def _tick(self, loop: asyncio.AbstractEventLoop, began: float) -> None:
        self._end_interval()
        self._plan(loop, began)

    def _end_interval(self) -> None:
        assert self._get_facts is not None, "start was given it"
        self._facts = self._get_facts()
        self._due.set()

    # In the thread

    def _run(self) -> None:
        try:
            self._record()
        except Exception as error:
            self._log.error("telemetry_ended", error=f"{type(error).__name__}: {error}")

    def _record(self) -> None:
        preload()
        from hbroker.runtime.telemetry.journal import Journal

        journal = Journal(self._settings, *self._owner, self._watch, self._log)
        is_last = False
        while not is_last:
            self._due.wait()
            self._due.clear()
            is_last = self._is_over
            load = self._take_counters()
            if load is not None and self._facts is not None:
                sample = journal.add_interval(self._facts, load)
                self.hottest_topics.add(load, sample.seconds)
        journal.close()
