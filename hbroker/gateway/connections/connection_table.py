"""The connections of a gateway, by number and by client id. A client id has one connection at most."""

from __future__ import annotations

from collections.abc import Iterator

from hbroker.gateway.connections.connection import Connection, State

__all__ = ["ConnectionTable"]


class ConnectionTable:
    """All connections that have not ended."""

    def __init__(self) -> None:
        self._by_id: dict[int, Connection] = {}
        self._by_client: dict[str, Connection] = {}
        self.most = 0
        """The highest number of connections at one time."""
        self.disconnecting = 0
        """The number of broken connections whose end is still queued (`disconnect_queue`)."""

    def add(self, connection: Connection) -> None:
        """Adds a connection when its CONNECT has arrived."""
        self._by_id[connection.id] = connection
        self.most = max(self.most, len(self._by_id))

    def name(self, connection: Connection) -> None:
        """Gives the client id to this connection. The former one was ended."""
        self._by_client[connection.client_id] = connection

    def remove(self, connection: Connection) -> None:
        """Removes a connection that has ended."""
        self._by_id.pop(connection.id, None)
        if self._by_client.get(connection.client_id) is connection:
            del self._by_client[connection.client_id]

    def get(self, id: int) -> Connection | None:
        """The connection with this number; None: there is none."""
        return self._by_id.get(id)

    def of_client(self, client_id: str) -> Connection | None:
        """The connection that has this client id, or claims it; None: there is none."""
        return self._by_client.get(client_id)

    @property
    def staying(self) -> int:
        """The number of connections that have not broken."""
        return len(self) - self.disconnecting

    def open(self) -> Iterator[Connection]:
        """The connections that were accepted and are open."""
        return (connection for connection in list(self._by_id.values()) if connection.state is State.OPEN)

    def all(self) -> list[Connection]:
        """All connections, open or not."""
        return list(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)
