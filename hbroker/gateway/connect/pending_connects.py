"""CONNECTs of one client id that come before the one before them is answered: each is answered, one after the
other (MQTT 5 §3.1.4).

A connection whose client connects again is taken over: it is told 0x8E. That can only be told once it was
accepted. So the later one waits for that, or for the earlier one's end, but not for long: after a while the
earlier one is refused in its place. Few wait for one client: of more, the one that has waited longest is
refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from hbroker.gateway.connect.connection import Connection, Event, State
from hbroker.gateway.connect.connection_table import ConnectionTable
from hbroker.protocol.timer_queue import TimerQueue, earliest
from hbroker.protocol.timers import SECOND

__all__ = ["MOST_WAITING", "PATIENCE", "PendingConnects"]

PATIENCE: Final = SECOND
"""How long a connection is given to be accepted where another waits for it: less than another gateway waits
for this one to let go of it (`claims.PATIENCE`)."""
MOST_WAITING: Final = 16
"""Connections that wait for one client."""

_PENDING: Final = (State.CLAIMING, State.RESUMING)


class PendingConnects:
    """Who waits for whom. `go_on` is told of a connection whose turn it is; `refuse` of one too many."""

    def __init__(
        self,
        connection_table: ConnectionTable,
        go_on: Callable[[int, Connection], None],
        refuse: Callable[[int, Connection], None],
    ) -> None:
        self._connection_table = connection_table
        self._go_on = go_on
        self._refuse = refuse
        self._waiting: dict[str, deque[Connection]] = {}
        self._timeouts: TimerQueue[str] = TimerQueue()
        self._awaited: dict[int, list[Callable[[int], None]]] = {}
        """By a connection that is not accepted yet: what is to be done once it is."""
        self._overdue: TimerQueue[int] = TimerQueue()

    # In

    def must_wait(self, now: int, connection: Connection) -> bool:
        """Whether it waits for the connection of its client that came before. Then `go_on` is told later."""
        client = connection.client_id
        waiting = self._waiting.get(client)
        if waiting is None and not self._has_pending(client):
            return False
        if waiting is None:
            waiting = self._waiting[client] = deque()
            self._await(now, client)
        connection.machine.handle(Event.QUEUE)
        waiting.append(connection)
        if len(waiting) > MOST_WAITING:
            self._refuse(now, waiting.popleft())
        return True

    def when_accepted(self, now: int, connection: Connection, then: Callable[[int], None]) -> None:
        """Calls `then` once it was accepted, or took too long; at once, if it is no question any more. If it
        ends before, not at all."""
        if connection.state not in _PENDING:
            then(now)
            return
        self._awaited.setdefault(connection.id, []).append(then)
        if connection.id not in self._overdue:
            self._overdue.set(connection.id, now + PATIENCE)
            connection.on_end.append(lambda now, is_distributed: self._forget(connection.id))

    def accepted(self, now: int, connection: Connection) -> None:
        """It has its CONNACK."""
        self._resolve(now, connection.id)
        self._next(now, connection.client_id)

    def handle_timeout(self, now: int) -> None:
        """Goes on without what took too long."""
        for number in self._overdue.due(now):
            self._resolve(now, number)
        for client in self._timeouts.due(now):
            self._begin(now, client)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        return earliest(self._overdue.next(), self._timeouts.next())

    # The queue of a client

    def _await(self, now: int, client: str) -> None:
        """The next one waits for the connection that its client has now."""
        self._timeouts.set(client, now + PATIENCE)
        former = self._connection_table.of_client(client)
        if former is not None:
            former.on_end.append(lambda now, is_distributed: self._next(now, client))

    def _next(self, now: int, client: str) -> None:
        if not self._has_pending(client):
            self._begin(now, client)

    def _has_pending(self, client: str) -> bool:
        """Whether the client has a connection that is not accepted yet."""
        current = self._connection_table.of_client(client)
        return current is not None and current.state in _PENDING

    def _begin(self, now: int, client: str) -> None:
        """The next one, if one is still there, has the client now."""
        waiting = self._waiting.get(client)
        while waiting:
            connection = waiting.popleft()
            if connection.state is not State.QUEUED:
                continue  # It was closed.
            self._go_on(now, connection)
            if waiting and self._has_pending(client):
                self._await(now, client)
                return
        self._waiting.pop(client, None)
        self._timeouts.cancel(client)

    # Those who wait for one connection

    def _resolve(self, now: int, number: int) -> None:
        self._overdue.cancel(number)
        for then in self._awaited.pop(number, ()):
            then(now)

    def _forget(self, number: int) -> None:
        self._overdue.cancel(number)
        self._awaited.pop(number, None)
