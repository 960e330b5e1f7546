"""Runs the control loops of all clients of a pool: `PoolDriver`, `PoolEndpoint`.

A `PoolEndpoint` is the endpoint of one client's dispatcher. It also takes the place of the client's `Driver`.
One iteration takes the events and messages of all clients, and visits the clients that have some, are due, or
were woken. Messages wait at their endpoint until the dispatcher has room. Until then they are not
acknowledged, so their owner keeps them, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from hbroker._native import ClientPool, Message
from hbroker._native import PoolClient as NativePoolClient
from hbroker.protocol.client import ClientControl
from hbroker.protocol.packets import Address
from hbroker.protocol.timers import TimerQueue
from hbroker.runtime.control_loop import clock
from hbroker.runtime.credentials import CredentialFiles

__all__ = ["PoolDriver", "PoolEndpoint"]

BATCH: Final = 512
"""The most events, and the most messages, that one iteration takes."""
_SHORTEST_S: Final = 0.001

logger = logging.getLogger(__name__)


class PoolDriver:
    """Runs all clients of one pool, in one event loop. `credential_files`: from which its credentials are
    read."""

    def __init__(
        self,
        pool: ClientPool,
        loop: asyncio.AbstractEventLoop,
        credential_files: CredentialFiles | None = None,
    ) -> None:
        self.pool = pool
        self._credential_files = credential_files
        self._loop: asyncio.AbstractEventLoop | None = loop
        self._endpoints: dict[int, PoolEndpoint] = {}
        self._woken: dict[int, PoolEndpoint] = {}
        """The endpoints that the next iteration visits."""
        self._deadlines: TimerQueue[int] = TimerQueue()
        self._handled: list[tuple[int, tuple[int, int]]] = []
        self._next: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(pool.fileno(), self._iterate)

    # Change

    def add(self, number: int, *, acknowledges: bool) -> PoolEndpoint:
        """The endpoint of a new client. `acknowledges`: messages are acknowledged when the dispatcher reads
        them."""
        endpoint = PoolEndpoint(self, number, self.pool.member(number), acknowledges=acknowledges)
        self._endpoints[number] = endpoint
        return endpoint

    def remove(self, endpoint: PoolEndpoint) -> None:
        """Removes a client that has ended. Idempotent."""
        if self._endpoints.pop(endpoint.number, None) is not None and self._loop is not None:
            self._woken.pop(endpoint.number, None)
            self._deadlines.cancel(endpoint.number)
            self.pool.close_pool_client(endpoint.number)

    def wake(self, endpoint: PoolEndpoint) -> None:
        """Visits this endpoint in the next iteration."""
        if self._loop is not None:
            self._woken[endpoint.number] = endpoint
            if self._next is None:
                self._next = self._loop.call_soon(self._iterate)

    def acknowledge(self, number: int, messages: list[Message]) -> None:
        """§7.3: acknowledges messages of a client, at the end of the iteration."""
        self._handled += [(number, m.copy_id) for m in messages if m.qos]

    def stop(self) -> None:
        """Ends the pool. Idempotent."""
        if self._loop is None:
            return
        self._loop.remove_reader(self.pool.fileno())
        for handle in (self._next, self._timer):
            if handle is not None:
                handle.cancel()
        self._endpoints.clear()
        self._loop = None
        self.pool.shutdown()

    # Iterations

    def _iterate(self) -> None:
        """Runs one iteration."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._loop is None:
            return
        now = clock()
        if self._credential_files is not None:
            credentials = self._credential_files.credentials_if_changed(now)
            if credentials is not None:
                self.pool.set_credentials(credentials)
        visited, self._woken = self._woken, {}
        events = self.pool.poll_pool_events(BATCH)
        for number, event in events:
            if (endpoint := self._endpoints.get(number)) is not None:
                visited[number] = endpoint
                endpoint.guard(endpoint.control.handle_event, now, event)
        messages = self.pool.poll_pool_messages(BATCH)
        for number, message in messages:
            if (endpoint := self._endpoints.get(number)) is not None:
                visited[number] = endpoint
                endpoint.unread.append(message)
        for number in self._deadlines.due(now):
            endpoint = self._endpoints[number]
            visited[number] = endpoint
            endpoint.guard(endpoint.control.handle_timeout, now)
        if self.pool.fault is not None:
            visited = dict(self._endpoints)
        for endpoint in visited.values():
            self._visit(now, endpoint)
        if self._handled:
            self.pool.handled(self._handled)
            self._handled = []
        self._plan(now, at_once=bool(self._woken) or BATCH in (len(events), len(messages)))

    def _visit(self, now: int, endpoint: PoolEndpoint) -> None:
        if endpoint.number not in self._endpoints:
            return
        if endpoint.guard(endpoint.on_iteration, now):
            self._woken[endpoint.number] = endpoint
        if endpoint.number not in self._endpoints:
            return  # `on_iteration` has ended the client.
        self._deadlines.set(endpoint.number, endpoint.control.poll_timeout())

    def _plan(self, now: int, *, at_once: bool) -> None:
        if self._loop is None:
            return
        if at_once and self._next is None:
            self._next = self._loop.call_soon(self._iterate)
        if self._timer is not None:
            self._timer.cancel()
        due = self._deadlines.next()
        if self._credential_files is not None:
            due = (
                self._credential_files.next_look
                if due is None
                else min(due, self._credential_files.next_look)
            )
        self._timer = None
        if due is not None:
            self._timer = self._loop.call_later(max(_SHORTEST_S, (due - now) / 1e6), self._iterate)


class PoolEndpoint:
    """The endpoint of one client of the pool. Verbs that are not defined here are those of the native
    client."""

    control: ClientControl

    def __init__(
        self, pool: PoolDriver, number: int, native: NativePoolClient, *, acknowledges: bool
    ) -> None:
        self._endpoints = pool
        self._native = native
        self._acknowledges = acknowledges
        self.number = number
        self.unread: deque[Message] = deque()
        self.on_iteration: Callable[[int], bool] = lambda now: False
        self.on_error: Callable[[Exception], None] = lambda error: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def run(
        self,
        endpoint: object,
        control: ClientControl,
        *,
        on_iteration: Callable[[int], bool],
        on_error: Callable[[Exception], None],
        credential_files: CredentialFiles | None = None,
    ) -> PoolEndpoint:
        """Sets the control that this endpoint runs, and returns itself in the place of a `Driver`. The
        arguments are those of `Driver`; the pool has the only `credential_files`."""
        self.control, self.on_iteration, self.on_error = control, on_iteration, on_error
        return self

    # As an endpoint

    @property
    def fault(self) -> str | None:
        """As `Endpoint.fault`."""
        return self._endpoints.pool.fault

    @property
    def address(self) -> Address:
        """The address of the pool's socket."""
        return self._endpoints.pool.address

    def poll_messages(self, limit: int = 1024) -> list[Message]:
        """As `Endpoint.poll_messages`."""
        messages = [self.unread.popleft() for _ in range(min(limit, len(self.unread)))]
        if self._acknowledges and messages:
            self._endpoints.acknowledge(self.number, messages)
        return messages

    def shutdown(self) -> None:
        """Ends the client. The pool's socket stays open."""
        self._endpoints.remove(self)

    # As a runner

    def start(self) -> None:
        """Schedules the first iteration."""
        self.wake()

    def wake(self) -> None:
        """Schedules a visit in the next iteration."""
        self._endpoints.wake(self)

    def watch(self, is_watching: bool) -> None:
        """Does nothing: messages that the client does not take stay in `unread`."""

    def stop(self) -> None:
        """Does nothing: `shutdown` follows."""

    def guard(self, handler: Callable[..., Any], *args: Any) -> Any:
        """Calls a handler. An exception is a defect of this program: it is logged and given to `on_error`,
        and does not affect the other clients."""
        try:
            return handler(*args)
        except Exception as error:
            logger.exception("a handler of a member's control failed: a defect of this program")
            self.on_error(error)
            return None
