"""CONNECTs of a client id whose earlier CONNECT is not answered yet: they are answered one after the other
(MQTT 5 §3.1.4).

If a client connects again, its former connection gets DISCONNECT with 0x8E (session taken over). The gateway
can send that only after it has accepted the former connection. So the later CONNECT waits until the earlier
one is accepted or ends. If that takes more than `ACCEPT_TIMEOUT`, the earlier one is refused. At most
`MOST_WAITING` wait for one client. If there are more, the one that has waited longest is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from hbroker.gateway.connections.connection import Connection, ConnectionTable, Event, State
from hbroker.protocol.timers import SECOND, TimerQueue, earliest

__all__ = ["ACCEPT_TIMEOUT", "MOST_WAITING", "PendingConnects"]

ACCEPT_TIMEOUT: Final = SECOND
"""How long a connection may take to be accepted while another one waits for it. It is less than another
gateway waits for this one to let go of the client (`client_id_claims.CLAIM_TIMEOUT`)."""
MOST_WAITING: Final = 16
"""Connections that wait for one client."""

_PENDING: Final = (State.CLAIMING, State.RESUMING)


class PendingConnects:
    """The waiting connections, by client id. `on_ready` is called for a connection that need not wait any
    more, `refuse` for one too many."""

    def __init__(
        self,
        connection_table: ConnectionTable,
        on_ready: Callable[[int, Connection], None],
        refuse: Callable[[int, Connection], None],
    ) -> None:
        self._connection_table = connection_table
        self._on_ready = on_ready
        self._refuse = refuse
        self._queues: dict[str, deque[Connection]] = {}
        self._timeouts: TimerQueue[str] = TimerQueue()
        self._awaited: dict[int, list[Callable[[int], None]]] = {}
        """By a connection that is not accepted yet: the callbacks for its acceptance."""
        self._overdue: TimerQueue[int] = TimerQueue()

    # In

    def must_wait(self, now: int, connection: Connection) -> bool:
        """Whether the connection waits for an earlier one of its client. If so, `on_ready` is called
        later."""
        client = connection.client_name
        queue = self._queues.get(client)
        if queue is None and not self._has_pending(client):
            return False
        if queue is None:
            queue = self._queues[client] = deque()
            self._await(now, client)
        connection.state_machine.handle(Event.QUEUE)
        queue.append(connection)
        if len(queue) > MOST_WAITING:
            self._refuse(now, queue.popleft())
        return True

    def when_accepted(self, now: int, connection: Connection, then: Callable[[int], None]) -> None:
        """Calls `then` once the connection is accepted, or the wait has timed out.

        Calls it at once if the connection is not pending. Does not call it if the connection ends before.
        """
        if connection.state not in _PENDING:
            then(now)
            return
        self._awaited.setdefault(connection.id, []).append(then)
        if connection.id not in self._overdue:
            self._overdue.set(connection.id, now + ACCEPT_TIMEOUT)
            connection.on_end.append(lambda now, is_distributed: self._forget(connection.id))

    def accepted(self, now: int, connection: Connection) -> None:
        """The connection has its CONNACK: lets others go on."""
        self._resolve(now, connection.id)
        self._next(now, connection.client_name)

    def handle_timeout(self, now: int) -> None:
        """Goes on with those whose wait has timed out."""
        for number in self._overdue.due(now):
            self._resolve(now, number)
        for client in self._timeouts.due(now):
            self._begin(now, client)

    # Out

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return earliest(self._overdue.next(), self._timeouts.next())

    # The queue of a client

    def _await(self, now: int, client: str) -> None:
        """The next connection waits for the one that its client has now."""
        self._timeouts.set(client, now + ACCEPT_TIMEOUT)
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
        """Lets the next waiting connection go on, if there is one."""
        queue = self._queues.get(client)
        while queue:
            connection = queue.popleft()
            if connection.state is not State.QUEUED:
                continue  # It was closed.
            self._on_ready(now, connection)
            if queue and self._has_pending(client):
                self._await(now, client)
                return
        self._queues.pop(client, None)
        self._timeouts.cancel(client)

    # Callbacks of one connection

    def _resolve(self, now: int, number: int) -> None:
        self._overdue.cancel(number)
        for then in self._awaited.pop(number, ()):
            then(now)

    def _forget(self, number: int) -> None:
        self._overdue.cancel(number)
        self._awaited.pop(number, None)
