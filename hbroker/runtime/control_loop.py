"""One turn of a sans-IO control object over a native endpoint, whoever calls for it.

The control (a node's or a client's) takes events and the time and keeps a deadline. A turn takes a batch of
events, tells the control when its deadline has passed, and then the caller. The two drivers, of an event
loop and of a thread, differ only in how they wait between turns.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from hbroker.protocol.core import Event

__all__ = ["EVENTS", "HOLD_S", "Control", "ControlLoop", "Pollable", "clock"]

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("hbroker.driver")

EVENTS: Final = 16
"""Events taken in one turn. One that comes then waits for them, however few others its sender has (§3.3)."""
HOLD_S: Final = 0.01
"""How often events are taken while the descriptor is not watched, in seconds."""
_CLOCK: Final = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
"""That of the native core (`endpoint/clock.rs`): leases end by one clock in both languages."""
_SHORTEST: Final = 1_000
"""The shortest pause, in microseconds: a deadline that stays in the past must not spin."""


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

    def gather(self, gathers: bool) -> None:
        """Whether what follows from verbs may wait for more of them."""


def clock() -> int:
    """The endpoint's clock (µs): monotonic, and it goes on while the machine is suspended (§5.6)."""
    return time.clock_gettime_ns(_CLOCK) // 1000


class ControlLoop:
    """Turns of one control over one endpoint, whoever calls for them.

    `on_iteration(now)` is called at the end of each; it returns whether it wants another at once. `on_error`
    is told of an exception that a handler raised, which is a defect of this program: it is logged, and the
    next event is taken.
    """

    def __init__(
        self,
        endpoint: Pollable,
        control: Control,
        on_iteration: Callable[[int], bool] | None = None,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._control = control
        self._on_iteration = on_iteration
        self._on_error = on_error

    def take(self, now: int) -> bool:
        """One turn; returns whether another should follow at once."""
        events = self._endpoint.poll_events(EVENTS)
        if len(events) > 1:
            self._endpoint.gather(True)
        try:
            for event in events:
                self._guard(self._control.handle_event, now, event)
            deadline = self._control.poll_timeout()
            if deadline is not None and deadline <= now:
                self._guard(self._control.handle_timeout, now)
        finally:
            if len(events) > 1:
                self._endpoint.gather(False)
        wants_more = self._on_iteration is not None and bool(self._guard(self._on_iteration, now))
        return wants_more or len(events) == EVENTS

    def pause_s(self, now: int) -> float | None:
        """How long the control can wait, in seconds; None: for ever."""
        deadline = self._control.poll_timeout()
        return None if deadline is None else max(_SHORTEST, deadline - now) / 1e6

    def _guard(self, handler: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return handler(*args, **kwargs)
        except Exception as error:
            logger.exception("a handler of the control failed: a defect of this program")
            if self._on_error is not None:
                self._on_error(error)
            return None
