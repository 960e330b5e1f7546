"""Connections that broke, a few in each turn: those who come go first.

What follows from an end (a record, a member that leaves, a will) takes longer than a CONNECT. When a network
or a power line fails, all clients of a gateway are gone at once, and come back while their ends are still to
be seen to. If they had to wait for all of these, they would give up and come again. But with everyone who
comes one more may go: where clients come and go without pause, those who have gone are never many.

Ends of different clients do not depend on each other. The end of a connection comes before whatever its
client does next, here or at another gateway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hbroker.gateway.connect.connection import Connection
from hbroker.gateway.connect.connection_table import ConnectionTable
from hbroker.gateway.native_api import ClosedEvent

__all__ = ["AT_ONCE", "DisconnectQueue"]

AT_ONCE: Final = 32
"""Ends that are seen to in one turn, besides one for each client that has come."""


class DisconnectQueue:
    """The ends that wait. `closed` sees to one."""

    def __init__(
        self, connection_table: ConnectionTable, closed: Callable[[int, Connection, ClosedEvent], None]
    ) -> None:
        self._connection_table = connection_table
        self._closed = closed
        self._waiting: dict[int, tuple[Connection, ClosedEvent]] = {}
        """By the connection's number, in the order in which they broke."""
        self._iteration = 0
        self._left = 0
        """How many more there may be in the turn at this time."""
        self._come = 0
        """Clients for whom nobody has gone yet."""

    def add(self, now: int, connection: Connection, event: ClosedEvent) -> None:
        """A connection broke. It is seen to now, or soon."""
        if not self._waiting and self._may_go(now):
            self._closed(now, connection, event)
        else:
            self._waiting[connection.id] = connection, event
            self._connection_table.disconnecting = len(self._waiting)

    def came(self) -> None:
        """A client has come."""
        if self._waiting:
            self._come += 1

    def hurry(self, now: int, client: str) -> None:
        """The client comes, here or elsewhere: an end of its connection that waits comes before."""
        former = self._connection_table.of_client(client)
        if former is not None:
            self._see_to(now, former)

    def handle_timeout(self, now: int) -> None:
        """Sees to those whose turn it is."""
        while self._waiting and self._may_go(now):
            self._see_to(now, next(iter(self._waiting.values()))[0])

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due: in the next turn."""
        return self._iteration + 1 if self._waiting else None

    def __len__(self) -> int:
        return len(self._waiting)

    def _see_to(self, now: int, connection: Connection) -> None:
        waiting = self._waiting.pop(connection.id, None)
        if waiting is not None:
            self._connection_table.disconnecting = len(self._waiting)
            self._closed(now, *waiting)

    def _may_go(self, now: int) -> bool:
        if now != self._iteration:
            self._iteration, self._left = now, AT_ONCE
        if self._left:
            self._left -= 1
            return True
        self._come = min(self._come, len(self._waiting))
        if self._come:
            self._come -= 1
            return True
        return False
