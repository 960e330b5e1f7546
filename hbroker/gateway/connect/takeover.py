"""Lets go of clients that another gateway claims: the counterpart of `claim_requests`.

This gateway acknowledges a claim when every gateway knows the end of the clients' sessions here. So the other
gateway accepts no client whose session this one still has.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hbroker.gateway.connect.disconnect_handler import DisconnectHandler
from hbroker.gateway.connections.connection import Connection
from hbroker.gateway.connections.disconnect_queue import DisconnectQueue
from hbroker.gateway.connections.pending_connects import PendingConnects
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.outbox import Done, WaitGroup
from hbroker.gateway.reason_codes import Code
from hbroker.gateway.records import client_id_claims
from hbroker.gateway.records.client_id_claims import ClientIdClaim
from hbroker.gateway.records.record_authentication import verify

if TYPE_CHECKING:
    from hbroker._native import Message

__all__ = ["Takeover"]


class Takeover:
    """Ends this gateway's connections and sessions of clients that another gateway has now."""

    def __init__(
        self,
        context: GatewayContext,
        disconnect_handler: DisconnectHandler,
        disconnect_queue: DisconnectQueue,
        pending_connects: PendingConnects,
    ) -> None:
        self._context = context
        self._disconnect_handler = disconnect_handler
        self._disconnect_queue = disconnect_queue
        self._pending_connects = pending_connects

    def handle_claims(self, now: int, message: Message, done: Done) -> None:
        """Handles the claims of another gateway. `done`: called when the end of those clients here is
        distributed."""
        body = verify(self._context.key, message.topic, message.payload)
        parsed = None if body is None else client_id_claims.parse(body)
        if parsed is None:
            self._context.count("claims_dropped")
        wait_group = WaitGroup([done])
        for claim in parsed or ():
            self._release_client(now, claim, wait_group)
        wait_group.close(now)

    def handle_taken_over(self, now: int, connection: Connection) -> None:
        """Another gateway has this client's network session, and so the client. Its claim has not arrived
        here."""
        self._context.count("taken_over")
        connection.is_taken_over = True
        self._disconnect_handler.disconnect(now, connection, Code.SESSION_TAKEN_OVER)

    def _release_client(self, now: int, claim: ClientIdClaim, wait_group: WaitGroup) -> None:
        self._context.clock.observe(now, claim.stamp)
        self._disconnect_queue.handle_now(now, claim.client)
        connection = self._context.connection_table.of_client(claim.client)
        if connection is None:
            self._disconnect_handler.await_end(claim.client, wait_group)
            record = self._context.records.of(claim.client)
            if record is not None and record.stamp < claim.stamp:  # Otherwise the claim is a repetition.
                done = wait_group.add()
                self._disconnect_handler.claimed(now, record, ends_session=claim.ends_session, done=done)
        elif connection.stamp < claim.stamp:
            self._context.count("taken_over")
            connection.on_end.append(wait_group.add())
            take_over = partial(self._take_over, connection=connection, ends_session=claim.ends_session)
            self._pending_connects.when_accepted(now, connection, take_over)

    def _take_over(self, now: int, connection: Connection, ends_session: bool) -> None:
        self._disconnect_handler.disconnect(
            now, connection, Code.SESSION_TAKEN_OVER, ends_session=ends_session
        )
