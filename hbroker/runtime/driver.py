"""Runs a sans-IO control over a native endpoint, on asyncio.

An iteration runs when the endpoint's descriptor is readable, and when the control's deadline is due. If an
iteration leaves events behind, the next one follows after the event loop has run its other callbacks. So a
flood of events does not starve them.
"""

from __future__ import annotations

import asyncio

from hbroker.runtime.control_loop import UNWATCHED_POLL_S, ControlLoop, clock

__all__ = ["Driver"]


class Driver(ControlLoop):
    """Drives one control over one endpoint, in one event loop."""

    _loop: asyncio.AbstractEventLoop | None = None
    _timer: asyncio.TimerHandle | None = None
    _next: asyncio.Handle | None = None
    _is_watching = False

    def start(self) -> None:
        """Starts the driver in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self.watch(True)
        self.wake()

    def wake(self) -> None:
        """Schedules an iteration. The caller must do this after each call of the control from outside of the
        driver."""
        if self._loop is not None and self._next is None:
            self._next = self._loop.call_soon(self._iterate)

    def watch(self, is_watching: bool) -> None:
        """Whether to watch the endpoint's descriptor. A caller that leaves messages unread on purpose turns
        this off, because the descriptor stays readable. Events are then taken every `UNWATCHED_POLL_S`
        seconds."""
        if self._loop is None or is_watching == self._is_watching:
            return
        self._is_watching = is_watching
        if is_watching:
            self._loop.add_reader(self._endpoint.fileno(), self._iterate)
        else:
            self._loop.remove_reader(self._endpoint.fileno())

    def stop(self) -> None:
        """Stops the driver. The endpoint stays open. Idempotent."""
        if self._loop is None:
            return
        self.watch(False)
        for handle in (self._timer, self._next):
            if handle is not None:
                handle.cancel()
        self._loop = self._timer = self._next = None

    def _iterate(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        now = clock()
        if self.run_iteration(now):
            self.wake()
        if self._loop is None:  # `on_iteration` has stopped the driver.
            return
        if self._timer is not None:
            self._timer.cancel()
        pause = self.pause_s(now)
        if not self._is_watching:
            pause = UNWATCHED_POLL_S if pause is None else min(pause, UNWATCHED_POLL_S)
        self._timer = None if pause is None else self._loop.call_later(pause, self._iterate)
