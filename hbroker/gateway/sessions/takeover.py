"""Letting go of clients that another gateway connects: the other side of `claiming`.

A claim is acknowledged when every gateway knows what became of its clients here. So the one that claims
them accepts nobody whose session this one still has.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hbroker.gateway.connect.connection import Connection
from hbroker.gateway.connect.connection_table import Roster
from hbroker.gateway.connect.disconnect import Closing
from hbroker.gateway.connect.disconnect_queue import Departures
from hbroker.gateway.connect.pending_connects import Succession
from hbroker.gateway.context import Common
from hbroker.gateway.outbox import Done
from hbroker.gateway.reason_codes import Code
from hbroker.gateway.sessions import claims
from hbroker.gateway.sessions.claims import Claim
from hbroker.gateway.sessions.join_all import Barrier
from hbroker.gateway.sessions.record_authentication import unseal

if TYPE_CHECKING:
    from hbroker._native import Message

__all__ = ["Yielding"]


class Yielding:
    """Ends what this gateway has of clients that are another's now."""

    def __init__(
        self,
        common: Common,
        roster: Roster,
        closing: Closing,
        departures: Departures,
        succession: Succession,
    ) -> None:
        self._common = common
        self._roster = roster
        self._closing = closing
        self._departures = departures
        self._succession = succession

    def handle_claims(self, now: int, message: Message, done: Done) -> None:
        """Another gateway connects these clients. `done`: told when what became of them is distributed."""
        body = unseal(self._common.key, message.topic, message.payload)
        told = None if body is None else claims.parse(body)
        if told is None:
            self._common.count("claims_dropped")
        barrier = Barrier([done])
        for claim in told or ():
            self._yield(now, claim, barrier)
        barrier.close(now)

    def lose(self, now: int, connection: Connection) -> None:
        """Another gateway has this client's network session, and so the client: its claim did not come
        here."""
        self._common.count("taken_over")
        connection.is_lost = True
        self._closing.disconnect(now, connection, Code.SESSION_TAKEN_OVER)

    def _yield(self, now: int, claim: Claim, barrier: Barrier) -> None:
        self._common.clock.saw(now, claim.stamp)
        self._departures.hurry(now, claim.client)
        connection = self._roster.of_client(claim.client)
        if connection is None:
            self._closing.await_end(claim.client, barrier)
            record = self._common.records.of(claim.client)
            if record is not None and record.stamp < claim.stamp:  # Or it is said again.
                done = barrier.one_more()
                self._closing.claimed(now, record, ends_session=claim.ends_session, done=done)
        elif connection.stamp < claim.stamp:
            self._common.count("taken_over")
            connection.on_end.append(barrier.one_more())
            take_over = partial(self._take_over, connection=connection, ends_session=claim.ends_session)
            self._succession.when_accepted(now, connection, take_over)

    def _take_over(self, now: int, connection: Connection, ends_session: bool) -> None:
        self._closing.disconnect(now, connection, Code.SESSION_TAKEN_OVER, ends_session=ends_session)
