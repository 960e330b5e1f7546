"""Runs a sans-IO control object over a native endpoint, on asyncio.

The control (a node's or a client's) takes events and the time and keeps a deadline; the endpoint has a file
descriptor that is readable while something waits. A *turn* takes a batch of events, tells the control when its
deadline has passed, and arms one timer for the next deadline. A full batch is followed by another turn only after
the loop has served its other callbacks, so that a flood of events never starves them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from hbroker._native import Event

__all__ = ["BATCH", "Control", "Driver", "Pollable", "clock"]

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("hbroker.driver")

BATCH: Final = 512
"""Events taken in one turn."""
SHORTEST: Final = 1_000
"""The shortest timer, in microseconds: a deadline that stays in the past must not spin."""


class Control(Protocol):
    """What decides: `hbroker.protocol.node.Node` or `hbroker.protocol.client.ClientControl`."""

    def handle_event(self, now: int, event: Event) -> None:
        """Takes one event of the core."""

    def handle_timeout(self, now: int) -> None:
        """Does what is due."""

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due next (µs); None: never."""


class Pollable(Protocol):
    """The part of `hbroker._native.Endpoint` that a driver uses."""

    def fileno(self) -> int:
        """Readable while something waits."""

    def poll_events(self, limit: int = 1024) -> list[Event]:
        """The events that wait, at most `limit`."""


def clock() -> int:
    """The endpoint's clock: monotonic, in microseconds."""
    return time.monotonic_ns() // 1000


class Driver:
    """One control over one endpoint, in one event loop.

    `on_turn(now)` is called after each turn; where it returns True another turn follows at once. `on_error` is told
    of an exception that a handler raised, which is a defect of this program: it is logged, and the driver goes on
    with the next event.
    """

    def __init__(
        self,
        endpoint: Pollable,
        control: Control,
        *,
        on_turn: Callable[[int], bool] | None = None,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._control = control
        self._on_turn = on_turn
        self._on_error = on_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next: asyncio.Handle | None = None

    def start(self) -> None:
        """Begins to run in the current event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._endpoint.fileno(), self._turn)
        self.wake()

    def wake(self) -> None:
        """Asks for a turn soon: call it after every call of the control from outside of the driver."""
        if self._loop is not None and self._next is None:
            self._next = self._loop.call_soon(self._turn)

    def stop(self) -> None:
        """Ends. The endpoint stays open. Idempotent."""
        if self._loop is None:
            return
        self._loop.remove_reader(self._endpoint.fileno())
        for handle in (self._timer, self._next):
            if handle is not None:
                handle.cancel()
        self._loop = self._timer = self._next = None

    def _turn(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        now = clock()
        events = self._endpoint.poll_events(BATCH)
        for event in events:
            self._guard(self._control.handle_event, now, event)
        deadline = self._control.poll_timeout()
        if deadline is not None and deadline <= now:
            self._guard(self._control.handle_timeout, now)
        more = self._on_turn is not None and bool(self._guard(self._on_turn, now))
        if more or len(events) == BATCH:
            self.wake()
        self._arm(now)

    def _arm(self, now: int) -> None:
        if self._loop is None:  # on_turn may have stopped the driver
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._control.poll_timeout()
        if deadline is not None:
            self._timer = self._loop.call_later(max(SHORTEST, deadline - now) / 1e6, self._turn)

    def _guard(self, handler: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return handler(*args, **kwargs)
        except Exception as error:
            logger.exception("a handler of the control failed: a defect of this program")
            if self._on_error is not None:
                self._on_error(error)
            return None
