"""Claims that are being published. Those of one event-loop iteration are published together.

A claim costs every gateway a message and its acknowledgement. If all devices connect again at once, hundreds
of them connect in one iteration, and a few messages claim them all.

A message that was not distributed is made again, without the clients that have disconnected or connected
again in the meantime: its claims of those are out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hbroker.gateway.connections.connection import Connection
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import WillMessage
from hbroker.gateway.outbox import OutboxMessage
from hbroker.gateway.records import client_id_claims
from hbroker.gateway.records.client_id_claims import ClientIdClaim
from hbroker.gateway.records.record_authentication import CLAIMS, sign
from hbroker.protocol.timers import SECOND, TimerQueue, retry_after

__all__ = ["ClaimRequests"]

_REPEATED: Final = 300 * SECOND
_MOST_CHARACTERS: Final = 640
"""Bound on the characters of the client ids in one message, so that it leaves in one datagram. A longer
client id has a message of its own."""


@dataclass(slots=True, eq=False)
class _Batch:
    connections: Sequence[Connection]
    attempts: int = 0


class ClaimRequests:
    """The claims of one gateway. `claimed` is called for each connection whose client no other gateway
    has."""

    def __init__(
        self,
        context: GatewayContext,
        claimed: Callable[[int, Connection], None],
    ) -> None:
        self._context = context
        self._claimed = claimed
        self._topic = CLAIMS + context.settings.name
        self._pending: list[Connection] = []
        self._pauses: TimerQueue[_Batch] = TimerQueue()

    def claim(self, connection: Connection) -> None:
        """Claims the client of a connection, together with the others of this iteration."""
        self._pending.append(connection)

    def handle_timeout(self, now: int) -> None:
        """Publishes the waiting claims, and those whose retry is due."""
        waiting, self._pending = self._pending, []
        for connections in _together(waiting):
            self._send(now, _Batch(connections))
        for batch in self._pauses.due(now):
            batch.connections = [one for one in batch.connections if self._is_current(now, one)]
            if batch.connections:
                self._send(now, batch)

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return self._pending[0].claimed_at if self._pending else self._pauses.next()

    def _send(self, now: int, batch: _Batch) -> None:
        batch_claims = [
            ClientIdClaim(one.client_name, one.stamp, one.event.clean_start) for one in batch.connections
        ]
        body = client_id_claims.body_of(self._context.settings.name, batch_claims)
        message = WillMessage(self._topic, sign(self._context.key, self._topic, body), qos=1)

        def sent(now: int, is_distributed: bool) -> None:
            if is_distributed:
                for connection in batch.connections:
                    self._claimed(now, connection)
            else:
                self._pauses.set(batch, now + retry_after(batch.attempts, self._context.random))
                batch.attempts += 1

        self._context.outbox.enqueue(now, OutboxMessage(message, sent, until=now))

    def _is_current(self, now: int, connection: Connection) -> bool:
        is_known = self._context.connection_table.of_client(connection.client_name) is connection
        return is_known and now < connection.claimed_at + _REPEATED


def _together(connections: Sequence[Connection]) -> Iterator[list[Connection]]:
    """Batches that each fit into one message, in order."""
    part: list[Connection] = []
    characters = 0
    for connection in connections:
        length = len(connection.client_name)
        if len(part) == client_id_claims.MOST_TOGETHER or (part and characters + length > _MOST_CHARACTERS):
            yield part
            part, characters = [], 0
        part.append(connection)
        characters += length
    if part:
        yield part
