"""Writes session records: when a session changes, when its client disconnects, and when the session ends.

While a client is connected, its record has what another gateway needs if this one dies: the subscriptions,
and the block of its packet ids. Changes that follow each other closely are written together. When the client
disconnects, the record also has the messages in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from hbroker.gateway.connections.connection import Connection
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import SessionState, WillMessage
from hbroker.gateway.outbox import Done, OutboxMessage
from hbroker.gateway.records.client_id_claims import Stamp
from hbroker.gateway.records.record_authentication import sign
from hbroker.gateway.records.session_records import SessionEnd, SessionRecord
from hbroker.gateway.records.wills import PendingWill
from hbroker.protocol.timers import SECOND, TimerQueue, earliest

__all__ = ["SessionStore"]

_DEBOUNCE: Final = 50_000
_RESTORE_PAUSE: Final = SECOND // 10
"""Time after which a record is put right, however often it was written in the meantime."""
_REFRESH_PAUSE: Final = SECOND // 10
_REFRESH_BATCH: Final = 200


class SessionStore:
    """The records that this gateway writes."""

    def __init__(self, context: GatewayContext) -> None:
        self._context = context
        self._changed: TimerQueue[Connection] = TimerQueue()
        self._to_correct: TimerQueue[str] = TimerQueue()
        """Topics whose payload must be corrected."""
        self._refresh: Iterator[tuple[str, bytes]] | None = None
        self._refresh_at: int | None = None

    # Change

    def save_changed(self, now: int, connection: Connection, done: Done | None) -> None:
        """The session of a connected client has changed. `done`: called when every gateway knows; None: the
        record may be written a little later."""
        if not connection.is_over and connection.expiry_s > 0:
            if done is not None:
                self._write_connected(now, connection, done)
            elif connection not in self._changed:
                self._changed.set(connection, now + _DEBOUNCE)
        elif done is not None:
            done(now, True)

    def save_disconnected(
        self,
        now: int,
        connection: Connection,
        state: SessionState,
        will: PendingWill | None,
        done: Done | None = None,
    ) -> None:
        """The client has disconnected, and its session stays."""
        self._changed.cancel(connection)
        record = self._record(connection, self._context.clock.unix_us(now), state, will)
        self.write(now, record, is_connected_here=False, done=done)

    def save_ended(self, now: int, client: str, done: Done | None = None) -> None:
        """The session has ended. Once every gateway knows, its topic is cleared."""
        session_end = SessionEnd(client, self._stamp(now, client))
        payload = sign(self._context.key, session_end.topic, session_end.body())
        self._context.records.put_end(session_end, payload)
        self._publish_end(now, session_end.topic, payload, done)

    def correct_later(self, now: int, topic: str) -> None:
        """A topic has a false payload: the true one is written again soon."""
        if topic not in self._to_correct and self._context.records.correct_payload(topic) is not None:
            self._context.count("records_restored")
            self._to_correct.set(topic, now + _RESTORE_PAUSE)

    def forget(self, connection: Connection) -> None:
        """The connection has ended: a planned write of its record is out of date."""
        self._changed.cancel(connection)

    def write(
        self, now: int, record: SessionRecord, *, is_connected_here: bool, done: Done | None = None
    ) -> None:
        """Writes a record, with a new stamp. `is_connected_here`: its client is connected to this gateway."""
        record = replace(record, stamp=self._stamp(now, record.client))
        topic = record.topic
        payload = sign(self._context.key, topic, record.body())
        self._context.records.put(now, record, topic, payload, is_connected_here=is_connected_here)
        self._enqueue(now, topic, payload, done)

    def refresh(self, now: int) -> None:
        """Writes all records again for which this gateway is responsible, a batch at a time.

        The owner of `$gateway` may have lost them.
        """
        self._refresh = self._context.records.own_records()
        self._refresh_at = now + _REFRESH_PAUSE

    def handle_timeout(self, now: int) -> None:
        """Writes the records that are due."""
        for connection in self._changed.due(now):
            self._write_connected(now, connection, None)
        for topic in self._to_correct.due(now):
            self._restore(now, topic)
        if self._refresh_at is not None and self._refresh_at <= now:
            self._refresh_some(now)

    # Out

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return earliest(self._changed.next(), self._to_correct.next(), self._refresh_at)

    def _write_connected(self, now: int, connection: Connection, done: Done | None) -> None:
        self._changed.cancel(connection)
        connection.has_record = True
        state = SessionState(block=connection.block)
        self.write(now, self._record(connection, None, state, None), is_connected_here=True, done=done)

    def _record(
        self,
        connection: Connection,
        offline_since_us: int | None,
        state: SessionState,
        will: PendingWill | None,
    ) -> SessionRecord:
        return SessionRecord(
            client=connection.client_name,
            gateway=self._context.settings.name,
            run=self._context.clock.run,
            expiry_s=connection.expiry_s,
            offline_since_us=offline_since_us,
            has_pool_client=connection.is_persistent
            and (connection.pool_client is not None or bool(connection.stale_subscriptions)),
            subscriptions=tuple(
                subscription.to_record() for subscription in connection.subscriptions.values()
            ),
            stale_subscriptions=connection.stale_subscriptions,
            state=state,
            will=will,
        )

    def _refresh_some(self, now: int) -> None:
        self._refresh_at = now + _REFRESH_PAUSE
        for _ in range(_REFRESH_BATCH):
            topic, payload = next(self._refresh or iter(()), ("", b""))
            if not topic:
                self._refresh_at = self._refresh = None
                return
            self._enqueue(now, topic, payload, None)

    def _stamp(self, now: int, client: str) -> Stamp:
        return self._context.records.stamp_after(client, self._context.clock.stamp(now))

    def _restore(self, now: int, topic: str) -> None:
        correct = self._context.records.correct_payload(topic)
        if correct is not None:
            payload, has_ended = correct
            if has_ended:
                self._publish_end(now, topic, payload, None)
            else:
                self._enqueue(now, topic, payload, None)

    def _publish_end(self, now: int, topic: str, payload: bytes, done: Done | None) -> None:
        def written(now: int, is_distributed: bool) -> None:
            if is_distributed and self._context.records.is_ending(topic, payload):
                self._enqueue(now, topic, b"", None)
            if done is not None:
                done(now, is_distributed)

        self._enqueue(now, topic, payload, written)

    def _enqueue(self, now: int, topic: str, payload: bytes, done: Done | None) -> None:
        message = WillMessage(topic, payload, qos=1, retain=True)
        self._context.outbox.enqueue(now, OutboxMessage(message, done, replaces=True))
