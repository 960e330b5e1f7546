"""The end of a connection and of a session: the will, the record, the pool client, in that order.

A connection is ended by the client, by the network, by the policy, or by a claim of its client id at another
gateway. This class handles each end once. What a later gateway must know is distributed before this one
reports that it has let go of the client (`done`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from hbroker._native import NativeError
from hbroker.gateway.connections.connection import Connection, Event, State
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import SessionState, next_block
from hbroker.gateway.outbox import Done, OutboxMessage, WaitGroup
from hbroker.gateway.reason_codes import Code
from hbroker.gateway.records.session_records import SessionRecord
from hbroker.gateway.records.wills import PendingWill, after_close
from hbroker.gateway.sessions.session_store import SessionStore
from hbroker.gateway.subscriptions.mqtt_subscriptions import MqttSubscriptions

__all__ = ["DisconnectHandler"]


class DisconnectHandler:
    """Ends connections and sessions."""

    def __init__(
        self,
        context: GatewayContext,
        mqtt_subscriptions: MqttSubscriptions,
        session_store: SessionStore,
    ) -> None:
        self._context = context
        self._mqtt_subscriptions = mqtt_subscriptions
        self._session_store = session_store
        self._ending: dict[str, list[Done]] = {}
        """By client id: callbacks for the end of its last connection, while that is not fully distributed."""

    # Connections

    def refuse(self, now: int, connection: Connection, code: Code, text: str = "") -> None:
        """Refuses a connection that was not accepted yet."""
        event = connection.event
        self._context.count("refused")
        self._context.events.refused(now, event, code, text)
        self._context.native_api.refuse(
            event.connection,
            code,
            text=text if event.wants_problem_information else "",
            server_reference=self._reference(code),
        )
        self.end(now, connection)

    def disconnect(
        self,
        now: int,
        connection: Connection,
        code: Code,
        text: str = "",
        *,
        ends_session: bool = False,
        done: Done | None = None,
    ) -> None:
        """Ends a connection in any state, from this side.

        `ends_session`: the session ends too, whatever its expiry. `done`: called when every gateway knows the
        end.
        """
        connection.ends_session |= ends_session
        if done is not None:
            connection.on_end.append(done)
        if connection.state is State.OPEN:
            connection.state_machine.handle(Event.DISCONNECT)
            self._context.events.disconnected(connection.event, connection.client_name, "server", code)
            self._context.native_api.disconnect(
                connection.id, code, text=text, server_reference=self._reference(code)
            )
        elif connection.state is not State.CLOSING:
            self.refuse(now, connection, Code.SERVER_UNAVAILABLE, text)

    def end(
        self,
        now: int,
        connection: Connection,
        *,
        reason: int | None = None,
        expiry_s: int | None = None,
    ) -> None:
        """Completes the end of a connection that is closed.

        `reason`, `expiry_s`: of the client's DISCONNECT; None: there was none.
        """
        state = connection.state
        if state is State.ENDED:
            return
        connection.state_machine.handle(Event.END)
        self._context.connection_table.remove(connection)
        self._session_store.forget(connection)
        if connection.acl is not None:
            self._context.access.release(connection.acl)
        wait_group = WaitGroup(connection.on_end)
        if connection.session is not None:
            self._await_earlier_end(connection, wait_group)
            self._change_expiry(now, connection, expiry_s)
            connection.ends_session |= connection.expiry_s == 0
            kept = self._export(connection, connection.session)
            self._mqtt_subscriptions.release(now, connection)
            was_open = state in (State.OPEN, State.CLOSING)
            self._end_session(now, connection, kept, reason, wait_group, was_open=was_open)
        wait_group.close(now)

    def await_end(self, client: str, wait_group: WaitGroup) -> None:
        """Keeps `wait_group` open until every gateway knows the end of the client's last connection here.

        Does nothing if there is no such end.
        """
        waiting = self._ending.get(client)
        if waiting is not None:
            waiting.append(wait_group.add())

    def _await_earlier_end(self, connection: Connection, wait_group: WaitGroup) -> None:
        """The end of a connection is complete only when that of its client's earlier connection is."""
        client, waiting = connection.client_name, connection.on_end
        self.await_end(client, wait_group)
        self._ending[client] = waiting

        def ended(now: int, is_distributed: bool) -> None:
            if self._ending.get(client) is waiting:
                del self._ending[client]

        waiting.append(ended)

    def _export(self, connection: Connection, session: int) -> SessionState:
        """Takes the session out of the core. If the core lost it with a thread, what is in flight is not
        known."""
        try:
            is_over = connection.ends_session and not connection.is_taken_over
            return cast(SessionState, self._context.native_api.export_session(session, is_over=is_over))
        except NativeError:
            self._context.count("sessions_lost")
            return SessionState(block=next_block(connection.block))

    def _end_session(
        self,
        now: int,
        connection: Connection,
        kept: SessionState,
        reason: int | None,
        wait_group: WaitGroup,
        *,
        was_open: bool,
    ) -> None:
        if connection.is_taken_over:
            if connection.pool_client is not None:
                self._context.network_clients.close_now(now, connection.pool_client)
            return
        now_us = self._context.clock.unix_us(now)
        pending = after_close(
            connection.will if was_open else None,
            now_us,
            connection.expiry_s,
            reason=reason,
            ends_session=connection.ends_session,
        )
        is_due = pending is not None and pending.due_us <= now_us
        if not connection.ends_session:
            later = None if is_due else pending
            self._session_store.save_disconnected(now, connection, kept, later, wait_group.add())
        elif connection.has_record:
            self._session_store.save_ended(now, connection.client_name, wait_group.add())
        if pending is None or not is_due:
            self._leave(now, connection, wait_group.add())
        elif pending.message.qos == 0 and self._owner_has_will(connection):
            self._leave(now, connection, wait_group.add(), with_will=True)
        else:
            self._publish(now, pending, connection, wait_group.add())

    def _owner_has_will(self, connection: Connection) -> bool:
        """Whether the owner of the will's topic has the will.

        If so, the owner publishes a will of QoS 0: the gateway's message could be lost on its way, or at a
        former owner.
        """
        pool_client, network_clients = connection.pool_client, self._context.network_clients
        return (
            pool_client is not None
            and network_clients.has(pool_client)
            and network_clients.control(pool_client).is_will_kept
        )

    def _publish(self, now: int, pending: PendingWill, connection: Connection, finish: Done) -> None:
        """Publishes the will. Then its owner need not keep it any more."""

        def published(now: int, is_distributed: bool) -> None:
            self._leave(now, connection, finish)

        self._context.outbox.enqueue(now, OutboxMessage(pending.message, published))

    def _leave(self, now: int, connection: Connection, finish: Done, *, with_will: bool = False) -> None:
        """Lets the session's own pool client leave its owners, if there is one."""
        pool_client, network_clients = connection.pool_client, self._context.network_clients
        if pool_client is None or not network_clients.has(pool_client):
            finish(now, True)
            return
        network_clients.when_closed(connection.client_name, lambda now: finish(now, True))
        network_clients.leave(now, pool_client, end_session=connection.ends_session, with_will=with_will)

    def _change_expiry(self, now: int, connection: Connection, expiry_s: int | None) -> None:
        """MQTT 5 §3.14.2.2.2: DISCONNECT changes the expiry, but an expiry of 0 stays 0."""
        if expiry_s is None or not connection.expiry_s:
            return
        connection.expiry_s = min(expiry_s, self._context.limits.session_expiry)
        if connection.expiry_s and connection.pool_client is not None:
            self._context.network_clients.control(connection.pool_client).set_expiry(now, connection.expiry_s)
            self._context.network_clients.reschedule(connection.pool_client)

    def _reference(self, code: Code) -> str | None:
        at_the_end = code in (Code.SERVER_SHUTTING_DOWN, Code.USE_ANOTHER_SERVER, Code.SERVER_UNAVAILABLE)
        return self._context.settings.server_reference or None if at_the_end else None

    # Sessions without a connection

    def claimed(
        self, now: int, record: SessionRecord, *, ends_session: bool, done: Done | None = None
    ) -> None:
        """Handles a claim of a client whose session is offline.

        Its will is withdrawn; if the session ends, or the will is due, it is published. The will is not
        published again, even if the client is not accepted. `done`: called when every gateway knows.
        """
        records = self._context.records
        is_due = record.will is not None and (ends_session or records.is_will_due(now, record))
        if is_due and records.is_responsible_for(record):
            self._publish_delayed(now, record, done)
        elif done is not None:
            done(now, True)
        records.claimed(now, record.client)

    def handle_timeout(self, now: int) -> None:
        """Publishes wills whose delay is over, and ends sessions whose expiry is over."""
        records = self._context.records
        for record in list(records.due(now)):
            if records.has_ended(now, record):
                if record.will is not None:
                    self._context.outbox.enqueue(now, OutboxMessage(record.will.message))
                self._session_store.save_ended(now, record.client)
                self._context.count("sessions_expired")
            elif records.is_will_due(now, record):
                self._publish_delayed(now, record, None)

    def _publish_delayed(self, now: int, record: SessionRecord, done: Done | None) -> None:
        """Publishes the will of a session that goes on, and removes it from the record."""
        assert record.will is not None, "it is due"
        self._context.outbox.enqueue(now, OutboxMessage(record.will.message))
        settings, clock = self._context.settings, self._context.clock
        own = replace(record, will=None, gateway=settings.name, run=clock.run)
        self._session_store.write(now, own, is_connected_here=False, done=done)
