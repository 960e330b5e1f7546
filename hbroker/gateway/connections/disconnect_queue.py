"""Ends of broken connections, handled a few in each event-loop iteration: CONNECTs go first.

The work for an end (a record, a pool client that leaves, a will) takes longer than a CONNECT. If a network or
a power line fails, all clients of a gateway disconnect at once, and connect again while their ends are still
queued. If they had to wait for all these ends, they would give up and try again. For each CONNECT one more
end may be handled. So the queue does not grow where clients come and go all the time.

Ends of different clients do not depend on each other. The end of a connection is handled before the next
CONNECT of its client, here or at another gateway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hbroker.gateway.connections.connection import Connection, ConnectionTable
from hbroker.gateway.native_api import ClosedEvent

__all__ = ["AT_ONCE", "DisconnectQueue"]

AT_ONCE: Final = 32
"""Ends that are handled in one iteration, besides one for each CONNECT."""


class DisconnectQueue:
    """The queue of ends. `closed` handles one."""

    def __init__(
        self, connection_table: ConnectionTable, closed: Callable[[int, Connection, ClosedEvent], None]
    ) -> None:
        self._connection_table = connection_table
        self._closed = closed
        self._queue: dict[int, tuple[Connection, ClosedEvent]] = {}
        """By the connection's number, in the order in which they broke."""
        self._iteration = 0
        self._budget = 0
        """How many more ends may be handled in this iteration."""
        self._unmatched_connects = 0
        """CONNECTs for which no end was handled yet."""

    def add(self, now: int, connection: Connection, event: ClosedEvent) -> None:
        """Handles the end of a broken connection, now or soon."""
        if not self._queue and self._take_budget(now):
            self._closed(now, connection, event)
        else:
            self._queue[connection.id] = connection, event
            self._connection_table.disconnecting = len(self._queue)

    def count_connect(self) -> None:
        """Counts a CONNECT."""
        if self._queue:
            self._unmatched_connects += 1

    def handle_now(self, now: int, client: str) -> None:
        """Handles a queued end of this client at once: the client connects, here or at another gateway."""
        former = self._connection_table.of_client(client)
        if former is not None:
            self._handle(now, former)

    def handle_timeout(self, now: int) -> None:
        """Handles the ends that this iteration allows."""
        while self._queue and self._take_budget(now):
            self._handle(now, next(iter(self._queue.values()))[0])

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due: in the next iteration; None: the queue is empty."""
        return self._iteration + 1 if self._queue else None

    def __len__(self) -> int:
        return len(self._queue)

    def _handle(self, now: int, connection: Connection) -> None:
        end = self._queue.pop(connection.id, None)
        if end is not None:
            self._connection_table.disconnecting = len(self._queue)
            self._closed(now, *end)

    def _take_budget(self, now: int) -> bool:
        if now != self._iteration:
            self._iteration, self._budget = now, AT_ONCE
        if self._budget:
            self._budget -= 1
            return True
        self._unmatched_connects = min(self._unmatched_connects, len(self._queue))
        if self._unmatched_connects:
            self._unmatched_connects -= 1
            return True
        return False
