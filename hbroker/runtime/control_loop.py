"""One iteration of a control loop: a sans-IO control over a native endpoint.

The control (of a node or a client) takes events and the time, and has one deadline. An iteration takes a
batch of events, calls the control's `handle_timeout` if its deadline has passed, and then calls the owner of
the loop. There are two owners: `Driver` (asyncio) and `hbroker.sync` (a thread). They differ only in how they
wait between two iterations.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from hbroker._native import Endpoint
    from hbroker.protocol.core import Event
    from hbroker.runtime.credentials import CredentialFiles

__all__ = ["EVENTS", "UNWATCHED_POLL_S", "Control", "ControlLoop", "clock"]

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("hbroker.driver")

EVENTS: Final = 16
"""Events that one iteration takes. A later event waits for these, even if its sender has sent little
(§3.3)."""
UNWATCHED_POLL_S: Final = 0.01
"""Seconds between two iterations while the descriptor is not watched."""
_SHORTEST: Final = 1_000
"""The shortest pause, in microseconds, so that a deadline that stays in the past causes no busy loop."""


class Control(Protocol):
    """The decisions: `hbroker.protocol.node.Node` or `hbroker.protocol.client.ClientControl`."""

    def handle_event(self, now: int, event: Event) -> None:
        """Handles one event of the native core. `now`: microseconds."""

    def handle_timeout(self, now: int) -> None:
        """Does everything that is due at `now` (microseconds)."""

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due next, in microseconds; None: never."""


def clock() -> int:
    """The clock of the native core (`endpoint/clock.rs`), so that leases end by one clock in both languages,
    in microseconds: monotonic, and it goes on while the machine is suspended (§5.6)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class ControlLoop:
    """The iterations of one control over one endpoint.

    `on_iteration(now)` is called at the end of each iteration. It returns whether another iteration should
    follow at once. `on_error` is called with an exception that a handler raised. Such an exception is a
    defect of this program: it is logged, and the loop takes the next event. `credential_files`: the files
    from which the endpoint's credentials are read again when one changes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        control: Control,
        on_iteration: Callable[[int], bool] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        credential_files: CredentialFiles | None = None,
    ) -> None:
        self._credential_files = credential_files
        self._endpoint = endpoint
        self._control = control
        self._on_iteration = on_iteration
        self._on_error = on_error

    def run_iteration(self, now: int) -> bool:
        """Runs one iteration. Returns whether another should follow at once."""
        if self._credential_files is not None:
            credentials = self._credential_files.credentials_if_changed(now)
            if credentials is not None:
                self._endpoint.set_credentials(credentials)
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
        """Seconds until the next iteration is due; None: no limit."""
        deadline = self._control.poll_timeout()
        if self._credential_files is not None:
            look = self._credential_files.next_look
            deadline = look if deadline is None else min(deadline, look)
        return None if deadline is None else max(_SHORTEST, deadline - now) / 1e6

    def _guard(self, handler: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return handler(*args, **kwargs)
        except Exception as error:
            logger.exception("a handler of the control failed: a defect of this program")
            if self._on_error is not None:
                self._on_error(error)
            return None
