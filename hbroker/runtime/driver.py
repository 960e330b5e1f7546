"""Runs a sans-IO control object over a native endpoint, on asyncio.

The endpoint has a file descriptor that is readable while something waits; a turn is taken when it is, and
when the control's deadline comes. A turn that left something behind is followed by another only after the
loop has served its other callbacks, so that a flood of events never starves them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hbroker.runtime.control_loop import HOLD_S, Control, ControlLoop, Pollable, clock

__all__ = ["Driver"]


class Driver:
    """One control over one endpoint, in one event loop. `on_iteration`, `on_error`: as in `ControlLoop`."""

    def __init__(
        self,
        endpoint: Pollable,
        control: Control,
        *,
        on_iteration: Callable[[int], bool] | None = None,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._control_loop = ControlLoop(endpoint, control, on_iteration, on_error)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next: asyncio.Handle | None = None
        self._is_watching = False

    def start(self) -> None:
        """Begins to run in the current event loop."""
        self._loop = asyncio.get_running_loop()
        self.watch(True)
        self.wake()

    def wake(self) -> None:
        """Asks for a turn soon: call it after every call of the control from outside of the driver."""
        if self._loop is not None and self._next is None:
            self._next = self._loop.call_soon(self._iterate)

    def watch(self, wanted: bool) -> None:
        """Whether to look at the descriptor. A caller that leaves messages unread on purpose looks away: the
        descriptor stays readable, and events are taken every `HOLD_S` instead."""
        if self._loop is None or wanted == self._is_watching:
            return
        self._is_watching = wanted
        if wanted:
            self._loop.add_reader(self._endpoint.fileno(), self._iterate)
        else:
            self._loop.remove_reader(self._endpoint.fileno())

    def stop(self) -> None:
        """Ends. The endpoint stays open. Idempotent."""
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
        if self._control_loop.take(now):
            self.wake()
        if self._loop is None:  # `on_iteration` stopped the driver
            return
        if self._timer is not None:
            self._timer.cancel()
        pause = self._control_loop.pause_s(now)
        if not self._is_watching:
            pause = HOLD_S if pause is None else min(pause, HOLD_S)
        self._timer = None if pause is None else self._loop.call_later(pause, self._iterate)
