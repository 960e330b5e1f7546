"""The end of a connection, and of a session: the will, the record, the member, in that order.

A connection ends by the client, by the network, by a policy, or because the client id was claimed
elsewhere. All come here once. What a later gateway must know is distributed before this one says that it
let go (`done`).
"""

from __future__ import annotations

from dataclasses import replace

from hbroker._native import NativeError
from hbroker.gateway.connect.connection import Connection, Event, State
from hbroker.gateway.connect.connection_table import Roster
from hbroker.gateway.connect.wills import PendingWill, after_close
from hbroker.gateway.context import Common
from hbroker.gateway.native_api import SessionState, next_block
from hbroker.gateway.outbox import Done, Letter
from hbroker.gateway.reason_codes import Code
from hbroker.gateway.sessions.join_all import Barrier
from hbroker.gateway.sessions.records import Record
from hbroker.gateway.sessions.session_store import Keeping
from hbroker.gateway.subscriptions.mqtt_subscriptions import Bridge

__all__ = ["Closing"]


class Closing:
    """Ends connections and sessions."""

    def __init__(self, common: Common, roster: Roster, bridge: Bridge, keeping: Keeping) -> None:
        self._common = common
        self._roster = roster
        self._bridge = bridge
        self._keeping = keeping
        self._ending: dict[str, list[Done]] = {}
        """Who waits for the end of a client's last connection, while not all of it is distributed."""

    # Connections

    def refuse(self, now: int, connection: Connection, code: Code, text: str = "") -> None:
        """Ends one that was not accepted yet."""
        event = connection.event
        self._common.count("refused")
        self._common.notices.refused(now, event, code, text)
        self._common.border.refuse(
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
        """Ends one in whatever state it is, from this side. `ends_session`: the session ends too, whatever
        its expiry. `done`: told when every gateway knows what became of it."""
        connection.ends_session |= ends_session
        if done is not None:
            connection.on_end.append(done)
        if connection.state is State.OPEN:
            connection.machine.handle(Event.DISCONNECT)
            self._common.notices.disconnected(connection.event, connection.client_id, "server", code)
            self._common.border.disconnect(
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
        """A connection is gone, and its session is back. `reason`, `expiry_s`: as its client's DISCONNECT had
        them; None: none came."""
        state = connection.state
        if state is State.ENDED:
            return
        connection.machine.handle(Event.END)
        self._roster.remove(connection)
        self._keeping.forget(connection)
        if connection.acl is not None:
            self._common.access.release(connection.acl)
        told = Barrier(connection.on_end)
        if connection.session is not None:
            self._note_end(connection, told)
            self._change_expiry(now, connection, expiry_s)
            connection.ends_session |= connection.expiry_s == 0
            kept = self._export(connection, connection.session)
            self._bridge.release(now, connection)
            was_open = state in (State.OPEN, State.CLOSING)
            self._end_session(now, connection, kept, reason, told, was_open=was_open)
        told.close(now)

    def await_end(self, client: str, barrier: Barrier) -> None:
        """Keeps `barrier` from ending before every gateway knows what became of the client's last connection,
        if that has ended here."""
        waiting = self._ending.get(client)
        if waiting is not None:
            waiting.append(barrier.one_more())

    def _note_end(self, connection: Connection, told: Barrier) -> None:
        """Its end has begun, and is over when that of its client's connection before is, too."""
        client, waiting = connection.client_id, connection.on_end
        self.await_end(client, told)
        self._ending[client] = waiting

        def ended(now: int, is_distributed: bool) -> None:
            if self._ending.get(client) is waiting:
                del self._ending[client]

        waiting.append(ended)

    def _export(self, connection: Connection, session: int) -> SessionState:
        """What is in flight. Of a session that the core lost with one of its threads nobody knows."""
        try:
            is_over = connection.ends_session and not connection.is_lost
            return self._common.border.export_session(session, is_over=is_over)
        except NativeError:
            self._common.count("sessions_lost")
            return SessionState(block=next_block(connection.block))

    def _end_session(
        self,
        now: int,
        connection: Connection,
        kept: SessionState,
        reason: int | None,
        told: Barrier,
        *,
        was_open: bool,
    ) -> None:
        if connection.is_lost:
            if connection.member is not None:
                self._common.members.drop(now, connection.member)
            return
        now_us = self._common.clock.unix_us(now)
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
            self._keeping.went(now, connection, kept, later, told.one_more())
        elif connection.has_record:
            self._keeping.ended(now, connection.client_id, told.one_more())
        if pending is None or not is_due:
            self._leave(now, connection, told.one_more())
        elif pending.message.qos == 0 and self._owner_has_will(connection):
            self._leave(now, connection, told.one_more(), with_will=True)
        else:
            self._publish(now, pending, connection, told.one_more())

    def _owner_has_will(self, connection: Connection) -> bool:
        """Then it publishes a will of QoS 0: a message to it could be lost on its way, or at whoever was the
        owner before."""
        member, members = connection.member, self._common.members
        return member is not None and members.has(member) and members.control(member).is_will_kept

    def _publish(self, now: int, pending: PendingWill, connection: Connection, finish: Done) -> None:
        """The will goes out; then its owner need not keep it any more."""

        def published(now: int, is_distributed: bool) -> None:
            self._leave(now, connection, finish)

        self._common.outbox.post(now, Letter(pending.message, published))

    def _leave(self, now: int, connection: Connection, finish: Done, *, with_will: bool = False) -> None:
        """Its own member leaves the owners, if it has one."""
        member, members = connection.member, self._common.members
        if member is None or not members.has(member):
            finish(now, True)
            return
        members.when_gone(connection.client_id, lambda now: finish(now, True))
        members.leave(now, member, end_session=connection.ends_session, with_will=with_will)

    def _change_expiry(self, now: int, connection: Connection, expiry_s: int | None) -> None:
        """MQTT 5 §3.14.2.2.2. One that had none cannot get one at the end."""
        if expiry_s is None or not connection.expiry_s:
            return
        connection.expiry_s = min(expiry_s, self._common.limits.session_expiry)
        if connection.expiry_s and connection.member is not None:
            self._common.members.control(connection.member).set_expiry(now, connection.expiry_s)
            self._common.members.touch(connection.member)

    def _reference(self, code: Code) -> str | None:
        at_the_end = code in (Code.SERVER_SHUTTING_DOWN, Code.USE_ANOTHER_SERVER, Code.SERVER_UNAVAILABLE)
        return self._common.settings.server_reference or None if at_the_end else None

    # Sessions without a connection

    def claimed(self, now: int, record: Record, *, ends_session: bool, done: Done | None = None) -> None:
        """Somebody connects the client of a session that is away: its will is withdrawn, or due with its
        end, and then nobody publishes it again, though the client does not get in. `done`: told when every
        gateway knows."""
        records = self._common.records
        is_due = record.will is not None and (ends_session or records.is_will_due(now, record))
        if is_due and records.is_mine(record):
            self._publish_delayed(now, record, done)
        elif done is not None:
            done(now, True)
        records.claimed(now, record.client)

    def handle_timeout(self, now: int) -> None:
        """Publishes wills whose delay is over; ends sessions that have been away for too long."""
        records = self._common.records
        for record in list(records.due(now)):
            if records.has_ended(now, record):
                if record.will is not None:
                    self._common.outbox.post(now, Letter(record.will.message))
                self._keeping.ended(now, record.client)
                self._common.count("sessions_expired")
            elif records.is_will_due(now, record):
                self._publish_delayed(now, record, None)

    def _publish_delayed(self, now: int, record: Record, done: Done | None) -> None:
        """Publishes the will of a session that goes on, for now: it has none any more."""
        assert record.will is not None, "it is due"
        self._common.outbox.post(now, Letter(record.will.message))
        settings, clock = self._common.settings, self._common.clock
        own = replace(record, will=None, gateway=settings.name, run=clock.run)
        self._keeping.write(now, own, is_here=False, done=done)
