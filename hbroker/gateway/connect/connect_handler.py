"""The steps from CONNECT to CONNACK.

    admit  ->  claim  ->  resume, or begin  ->  accept
    policy     no other   session, pool client,
               gateway    subscriptions,
               has it     will at its owner

Each step may take a round trip or more, and the client may have gone by its end. Two steps are bounded: a
claim that is not distributed, and a session that is not complete, delay the client by three seconds at most.
The gateway completes in the background what is missing then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from hbroker.gateway.access.acl_file import may_write
from hbroker.gateway.access.password_checks import (
    BUSY,
    Attempt,
    Bound,
    PasswordChecks,
    new_attempts,
    settle_tokens,
)
from hbroker.gateway.access.policy import (
    Admitted,
    Candidate,
    Challenge,
    Check,
    Decision,
    Policy,
    Refusal,
    remembers_passwords,
)
from hbroker.gateway.connect.disconnect_handler import DisconnectHandler
from hbroker.gateway.connections.connect_packet import admit
from hbroker.gateway.connections.connection import Connection, Event, State
from hbroker.gateway.connections.disconnect_queue import DisconnectQueue
from hbroker.gateway.connections.pending_connects import PendingConnects
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import (
    Accept,
    AuthEvent,
    ConnectEvent,
    SessionState,
    WillMessage,
    next_block,
)
from hbroker.gateway.reason_codes import Code
from hbroker.gateway.records import client_id_claims, wills
from hbroker.gateway.records.session_records import SessionRecord
from hbroker.gateway.sessions.claim_requests import ClaimRequests
from hbroker.gateway.sessions.session_store import SessionStore
from hbroker.gateway.sessions.stale_sessions import StaleSessions, forgotten
from hbroker.gateway.subscriptions.mqtt_subscriptions import MqttSubscriptions
from hbroker.protocol.timers import SECOND, TimerQueue, earliest
from hbroker.workspace import Workspace, name_is_valid

__all__ = ["MOST_OUTBOX_MESSAGES", "ConnectHandler"]

MOST_OUTBOX_MESSAGES: Final = 100_000
"""Messages in the outbox that are not distributed. With this many, a CONNECT is refused as server busy."""

_RESUME_TIMEOUT: Final = 3 * SECOND
_DISCARD_TIMEOUT: Final = 3 * SECOND // 2
"""Longer than the gateway waits for a pool client that leaves."""
_AUTH_TIMEOUT: Final = 10 * SECOND
"""The longest time for an authentication by AUTH with all its steps, at CONNECT or again."""
_SEED_BITS: Final = 64
_WILL: Final = "will"
_RECORD: Final = "record"
_MEMBER: Final = "member"
_COUNTED: Final = {
    Bound.PAIR: "refused_pair",
    Bound.ADDRESS: "refused_address",
    Bound.NAME: "refused_name",
}
_NATIVE_COUNTERS: Final = {**{bound.value: name for bound, name in _COUNTED.items()}, BUSY: "refused_busy"}
_OTHER_CLIENT_ID: Final = Refusal(
    Code.CLIENT_IDENTIFIER_NOT_VALID, "the client id is not the common name of the certificate"
)
_TOO_LONG: Final = "the authentication took too long"
_EXPIRED: Final = "the token has expired"
_ELSEWHERE: Final = "the client id is claimed by another connection"
_FULL_WORKSPACE: Final = "the workspace has all the clients that it may have at this gateway"
_OTHER_WORKSPACE: Final = "this listener is for another workspace"


class ConnectHandler:
    """All connections that are not open yet."""

    def __init__(
        self,
        context: GatewayContext,
        mqtt_subscriptions: MqttSubscriptions,
        session_store: SessionStore,
        disconnect_handler: DisconnectHandler,
        disconnect_queue: DisconnectQueue,
    ) -> None:
        self._context = context
        self._mqtt_subscriptions = mqtt_subscriptions
        self._session_store = session_store
        self._disconnect_handler = disconnect_handler
        self._disconnect_queue = disconnect_queue
        self._attempts = new_attempts(context.random.getrandbits(_SEED_BITS))
        self._native_refusals = 0
        context.events.native_refusals = self._take_native_refusals
        self.policy_changed()
        self._checks = PasswordChecks(self._attempts)
        self._claim_requests = ClaimRequests(context, self._claimed)
        self._claims: TimerQueue[Connection] = TimerQueue()
        self._resumptions: TimerQueue[Connection] = TimerQueue()
        self._exchanges: TimerQueue[Connection] = TimerQueue()
        self._admissions: TimerQueue[int] = TimerQueue()
        """The ends of admissions, by the number of the connection."""
        self.pending_connects = PendingConnects(context.connection_table, self._claim, self._refuse_oldest)
        self._stale_sessions = StaleSessions(context, mqtt_subscriptions, session_store)
        self.is_stopping = False

    # In

    def handle_connect(self, now: int, event: ConnectEvent) -> None:
        """Handles a CONNECT."""
        self._context.count("connects")
        connect_request = admit(
            event, self._context.limits, self._context.connection_table.unbroken, self._context.random
        )
        if self.is_stopping:
            connect_request = Refusal(Code.SERVER_UNAVAILABLE, "this gateway is ending")
        elif len(self._context.outbox) >= MOST_OUTBOX_MESSAGES:
            connect_request = Refusal(Code.SERVER_BUSY, "the network does not answer")
        if isinstance(connect_request, Refusal):
            self._refuse_unnamed(now, event, connect_request)
            return
        connection = Connection(event, connect_request)
        tls = self._context.settings.listeners[event.listener].tls
        if tls is not None and tls.names_client and connection.client_id != event.certificate_name:
            self._refuse_unnamed(now, event, _OTHER_CLIENT_ID)
            return
        self._context.connection_table.add(connection)
        if event.auth_method is not None:
            self._exchange(now, connection, event.auth_method, event.auth_data)
            return
        policy = self._context.policy
        answer = policy.admit(self._candidate(connection))
        if isinstance(answer, Admitted | Refusal):
            self._apply_decision(now, connection, answer)
        else:
            self._check(now, connection, policy, answer)

    def handle_auth(self, now: int, connection: Connection, event: AuthEvent) -> Code | None:
        """Handles an AUTH. Returns the code with which to close an open connection; None: it stays open."""
        if connection.event.auth_method != event.method:
            return Code.PROTOCOL_ERROR
        if connection.state is State.AUTHENTICATING:
            self._exchange(now, connection, event.method, event.data)
            return None
        if connection.state is not State.OPEN:
            return Code.PROTOCOL_ERROR
        answer = self._step(now, connection, event.method, event.data)
        match answer:
            case Challenge(data=data):
                self._context.native_api.auth(connection.id, Code.CONTINUE_AUTHENTICATION, event.method, data)
            case Admitted(username=username) if username != connection.username:
                return Code.NOT_AUTHORIZED
            case Admitted() if self._workspace_of(connection, answer) != connection.workspace:
                return Code.NOT_AUTHORIZED
            case Admitted(data=data):
                self._context.native_api.auth(connection.id, Code.SUCCESS, event.method, data)
            case Refusal(code=code):
                return code
            case None:
                return Code.BAD_AUTHENTICATION_METHOD
        return None

    def handle_decision(self, now: int, number: int, decision: Decision) -> None:
        """Handles the result of a check."""
        attempt = self._checks.finish(now, number, decision)
        connection = self._context.connection_table.get(number)
        if connection is None or connection.state is not State.AUTHENTICATING:
            return
        policy = self._context.policy
        if (
            isinstance(decision, Admitted)
            and policy is not attempt.policy  # The policy was reloaded in the meantime.
            and not policy.still_admits(decision.username, connection.client_id, decision.proof)
        ):
            decision = Refusal(Code.NOT_AUTHORIZED, "the name or its password has changed")
        elif isinstance(decision, Refusal):
            self._context.count("refused_password")
        self._apply_decision(now, connection, decision)

    def policy_changed(self) -> None:
        """Has the core refuse guesses beyond the bounds, if the policy remembers right passwords."""
        checks_natively = self._remembers = remembers_passwords(self._context.policy)
        self._context.native_api.refuse_guesses(self._attempts if checks_natively else None)

    def handle_will(self, now: int, connection: Connection) -> None:
        """The owner of the will's topic has the will, or none accepts it. Then only the gateway keeps it."""
        connection.awaited.discard(_WILL)
        self.handle_ready(now, connection)

    def handle_ready(self, now: int, connection: Connection) -> None:
        """Goes on with a connection if nothing that it waits for is outstanding."""
        if connection.state is State.RESUMING and connection.is_forgotten:
            self._discard(now, connection)
        if connection.state is State.RESUMING and not connection.awaited:
            self._accept(now, connection)

    def handle_closed(self, connection: Connection) -> None:
        """A connection is closed."""
        self._admissions.cancel(connection.id)

    def handle_timeout(self, now: int) -> None:
        """Sends waiting claims, and ends what has timed out."""
        self.pending_connects.handle_timeout(now)
        self._claim_requests.handle_timeout(now)
        for connection in self._exchanges.due(now):
            self._give_up_exchange(now, connection)
        for number in self._admissions.due(now):
            self._end_admission(now, number)
        for connection in self._claims.due(now):
            self._proceed_when_claimed(now, connection)
        for connection in self._resumptions.due(now):
            connection.awaited.clear()
            self.handle_ready(now, connection)
        self._stale_sessions.handle_timeout(now)

    # Out

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return earliest(
            self.pending_connects.poll_timeout(),
            self._claim_requests.poll_timeout(),
            self._claims.next(),
            self._resumptions.next(),
            self._exchanges.next(),
            self._admissions.next(),
            self._stale_sessions.poll_timeout(),
        )

    def poll_check(self, now: int) -> tuple[int, Check] | None:
        """The number and the check of the next attempt, to run in a thread; None: there is none now."""
        while (attempt := self._checks.poll(now)) is not None:
            connection = self._context.connection_table.get(attempt.number)
            if connection is not None and connection.state is State.AUTHENTICATING:
                return attempt.number, attempt.check
            self._checks.finish(now, attempt.number, None)
        return None

    def counters(self) -> dict[str, int]:
        """The counters of the decisions by name, with the CONNECTs that the core refused by itself."""
        native_counters = {_NATIVE_COUNTERS[text]: times for text, times in self._attempts.refused()}
        native_counters["connects"] = native_counters["refused"] = sum(native_counters.values())
        counts = self._context.counts
        return {name: counts.get(name, 0) + native_counters.get(name, 0) for name in counts | native_counters}

    def _take_native_refusals(self) -> int:
        before, self._native_refusals = (
            self._native_refusals,
            sum(times for _, times in self._attempts.refused()),
        )
        return self._native_refusals - before

    # Authentication

    def _candidate(self, connection: Connection) -> Candidate:
        event, listener = connection.event, self._context.settings.listeners[connection.event.listener]
        names_user = listener.tls is not None and listener.tls.names_user
        return Candidate(
            client_id=connection.client_id,
            username=event.username or None,
            password=event.password,
            peer=event.peer[0],
            listener=listener.url,
            certificate=event.certificate_name if names_user else "",
            version=event.version,
            names_user=names_user,
            exchange=connection.exchange,
        )

    def _check(self, now: int, connection: Connection, policy: Policy, check: Check) -> None:
        """Queues a password check, unless a bound on guesses refuses it."""
        source = self._attempts.source(connection.event.peer[0], connection.event.username)
        turned = self._checks.add(now, Attempt(connection.id, source, check, policy))
        if turned is None:
            return
        last, bound = turned
        refused = self._context.connection_table.get(last.number)
        if bound is not None:
            self._context.count(_COUNTED[bound])
            self._disconnect_handler.refuse(now, connection, Code.CONNECTION_RATE_EXCEEDED, bound.value)
        elif refused is not None and refused.state is State.AUTHENTICATING:
            self._context.count("refused_busy")
            self._disconnect_handler.refuse(now, refused, Code.SERVER_BUSY, BUSY)

    def _exchange(self, now: int, connection: Connection, method: str, data: bytes) -> None:
        answer = self._step(now, connection, method, data)
        match answer:
            case Challenge(data=reply):
                self._context.native_api.auth(connection.id, Code.CONTINUE_AUTHENTICATION, method, reply)
            case Admitted() | Refusal():
                self._apply_decision(now, connection, answer)
            case None:
                self._disconnect_handler.refuse(now, connection, Code.BAD_AUTHENTICATION_METHOD)

    def _give_up_exchange(self, now: int, connection: Connection) -> None:
        self._end_exchange(now, connection, None)
        if connection.state is State.AUTHENTICATING:
            self._disconnect_handler.refuse(now, connection, Code.NOT_AUTHORIZED, _TOO_LONG)
        elif connection.state is State.OPEN:
            self._disconnect_handler.disconnect(now, connection, Code.NOT_AUTHORIZED, _TOO_LONG)

    def _end_admission(self, now: int, number: int) -> None:
        connection = self._context.connection_table.get(number)
        if connection is not None:
            self._disconnect_handler.disconnect(now, connection, Code.NOT_AUTHORIZED, _EXPIRED)

    def _step(
        self, now: int, connection: Connection, method: str, data: bytes
    ) -> Decision | Challenge | None:
        """One step of an exchange. The exchange is one attempt, from its first step to its decision."""
        if connection.attempt is None:
            connection.attempt = self._attempts.source(connection.event.peer[0], connection.event.username)
            text = self._attempts.take(now, connection.attempt)
            if text is not None:
                connection.attempt = None
                self._context.count(_COUNTED[Bound(text)])
                return Refusal(Code.CONNECTION_RATE_EXCEEDED, text)
            self._exchanges.set(connection, now + _AUTH_TIMEOUT)
        step, connection.step = connection.step, connection.step + 1
        answer = self._context.policy.exchange(self._candidate(connection), method, data, step)
        if isinstance(answer, Challenge):
            connection.exchange = answer.state
        else:
            self._end_exchange(now, connection, answer)
        return answer

    def _end_exchange(self, now: int, connection: Connection, decision: Decision | None) -> None:
        """Settles the attempt of an exchange. `decision`: None: the exchange ended without one."""
        self._exchanges.cancel(connection)
        if connection.attempt is not None:
            settle_tokens(self._attempts, now, connection.attempt, decision)
        connection.attempt, connection.step, connection.exchange = None, 0, None

    def _apply_decision(self, now: int, connection: Connection, decision: Decision) -> None:
        if isinstance(decision, Refusal):
            self._disconnect_handler.refuse(now, connection, decision.code, decision.text)
            return
        name, password = connection.event.username, connection.event.password
        if self._remembers and name is not None and password is not None:
            self._attempts.remember(name, password)
        workspace = self._workspace_of(connection, decision)
        if workspace is None:
            self._disconnect_handler.refuse(now, connection, Code.NOT_AUTHORIZED, _OTHER_WORKSPACE)
            return
        connection.workspace = workspace
        self._disconnect_queue.handle_now(now, connection.client_name)
        connection.username, connection.proof = decision.username, decision.proof
        connection.until_s, connection.auth_data = decision.until_s, decision.data
        connection.acl = self._context.access.of(decision.username, connection.client_id)
        will = connection.event.will
        if will is not None and (
            workspace.absolute(will.topic) is None
            or not may_write(self._context.access.rules(connection.acl), will.topic)
        ):
            self._disconnect_handler.refuse(
                now, connection, Code.NOT_AUTHORIZED, "the will's topic is not allowed"
            )
        elif not self.pending_connects.must_wait(now, connection):
            self._claim(now, connection)

    def _workspace_of(self, connection: Connection, admitted: Admitted) -> Workspace | None:
        """The workspace of which an admitted client is; None: its listener is for another one."""
        listener, named = self._context.settings.listeners[connection.event.listener], admitted.workspace
        if named is None or named == listener.workspace:
            return Workspace(listener.workspace)
        return None if listener.workspace or not name_is_valid(named) else Workspace(named)

    def _refuse_oldest(self, now: int, connection: Connection) -> None:
        self._disconnect_handler.refuse(now, connection, Code.SERVER_BUSY, "this client connects too often")

    # The claim

    def _claim(self, now: int, connection: Connection) -> None:
        if not self._has_room(connection):
            self._disconnect_handler.refuse(now, connection, Code.QUOTA_EXCEEDED, _FULL_WORKSPACE)
            return
        connection.state_machine.handle(Event.ADMIT)
        connection.stamp, connection.claimed_at = self._context.clock.stamp(now), now
        former = self._context.connection_table.of_client(connection.client_name)
        self._context.connection_table.assign(connection)
        self._claims.set(connection, now + client_id_claims.CLAIM_TIMEOUT)
        if former is not None:
            self._replace(now, former, connection)
        self._claim_requests.claim(connection)

    def _has_room(self, connection: Connection) -> bool:
        """Whether the quota of its workspace has room for the client, as far as this gateway has clients."""
        name, table = connection.workspace.name, self._context.connection_table
        quotas = next((each for each in self._context.settings.workspaces if each.name == name), None)
        if quotas is None or not quotas.sessions or table.of_client(connection.client_name) is not None:
            return True
        return table.clients_of(name) < quotas.sessions

    def _claimed(self, now: int, connection: Connection) -> None:
        connection.is_claimed = True
        self._proceed_when_claimed(now, connection)

    def _replace(self, now: int, former: Connection, connection: Connection) -> None:
        """Ends the client's former connection at this gateway first."""
        connection.awaits_former = True
        self._context.count("taken_over")

        def ended(now: int, is_distributed: bool) -> None:
            connection.awaits_former = False
            self._proceed_when_claimed(now, connection)

        starts_clean = connection.event.clean_start
        self._disconnect_handler.disconnect(
            now, former, Code.SESSION_TAKEN_OVER, _ELSEWHERE, ends_session=starts_clean, done=ended
        )

    def _proceed_when_claimed(self, now: int, connection: Connection) -> None:
        """Goes on if no other gateway has the client, as far as known, and nothing of it is left here."""
        if connection.state is not State.CLAIMING:
            self._claims.cancel(connection)
            return
        if now < connection.claimed_at + client_id_claims.CLAIM_TIMEOUT:
            if not connection.is_claimed or connection.awaits_former:
                return
            if self._context.network_clients.when_closed(
                connection.client_name, lambda now: self._proceed_when_claimed(now, connection)
            ):
                return
        self._claims.cancel(connection)
        connection.state_machine.handle(Event.OWN)
        connection.expiry_s = connection.connect_request.expiry_s
        record = self._context.records.of(connection.client_name)
        has_ended = record is not None and self._context.records.has_ended(now, record)
        connection.starts_clean = connection.event.clean_start or has_ended or not connection.expiry_s
        goes_on = not (connection.event.clean_start or has_ended)
        if record is not None:
            self._disconnect_handler.claimed(now, record, ends_session=not goes_on)
        if record is not None and goes_on:
            self._resume(now, connection, record)
        else:
            self._begin(now, connection, record)
        self._register(now, connection)
        if connection.awaited:
            self._resumptions.set(connection, now + _RESUME_TIMEOUT)
        self.handle_ready(now, connection)

    # The session

    def _resume(self, now: int, connection: Connection, record: SessionRecord) -> None:
        connection.was_present, connection.has_record = not record.is_forgotten, True
        connection.stale_subscriptions = record.stale_subscriptions
        self._stale_sessions.await_resubscribe(now, connection)
        connection.is_persistent = connection.expiry_s > 0 or record.has_pool_client
        state, is_known = record.state, record.offline_since_us is not None
        if not is_known:  # Its gateway died, and what was in flight is not known.
            state = SessionState(block=next_block(state.block))
        connection.block = state.block
        connection.session = self._context.native_api.open_session(state)
        if record.has_pool_client:
            self._open_pool_client(now, connection, clean_start=False)
        self._mqtt_subscriptions.restore(now, connection, record.subscriptions)
        if not connection.expiry_s:
            connection.has_record = False
            self._session_store.save_ended(now, connection.client_name)
        elif is_known:
            self._session_store.save_changed(now, connection, None)
        else:
            self._await_record(now, connection)

    def _discard(self, now: int, connection: Connection) -> None:
        """The client begins anew: an owner does not have its session any more.

        What the other owners hold for it waits until the client subscribes again. Every gateway knows of this
        before the client does.
        """
        assert connection.session is not None, "it was opened"
        state = cast(SessionState, self._context.native_api.export_session(connection.session))
        kept = {known.filter: known for known in connection.stale_subscriptions}
        for filter, subscription in connection.subscriptions.items():
            if connection.has_own_subscription(filter):
                kept[filter] = subscription.to_record()
        connection.stale_subscriptions = tuple(kept.values()) if connection.expiry_s else ()
        self._stale_sessions.await_resubscribe(now, connection)
        self._mqtt_subscriptions.release(now, connection)
        connection.forget_subscriptions()
        connection.awaited.clear()
        connection.was_present, connection.starts_clean = False, not connection.expiry_s
        state = forgotten(state)
        connection.block = state.block
        connection.session = self._context.native_api.open_session(state)
        self._context.count("sessions_forgotten")
        self._resumptions.set(connection, now + _DISCARD_TIMEOUT)
        if connection.expiry_s:
            self._await_record(now, connection)
        self._await_disconnect(now, connection)

    def _await_disconnect(self, now: int, connection: Connection) -> None:
        """Lets the session's pool client leave: what it had not acknowledged goes back to its owners."""
        pool_client, connection.pool_client = connection.pool_client, None
        assert pool_client is not None, "only what a member of its own has can be forgotten"
        connection.awaited.add(_MEMBER)

        def on_closed(now: int) -> None:
            connection.awaited.discard(_MEMBER)
            if connection.state is State.RESUMING:
                self._register(now, connection)
            self.handle_ready(now, connection)

        self._context.network_clients.when_closed(connection.client_name, on_closed)
        self._context.network_clients.leave(now, pool_client, end_session=False)

    def _await_record(self, now: int, connection: Connection) -> None:
        """Waits until all gateways know which block of packet ids is used from now on."""
        connection.awaited.add(_RECORD)

        def written(now: int, is_distributed: bool) -> None:
            connection.awaited.discard(_RECORD)
            self.handle_ready(now, connection)

        self._session_store.save_changed(now, connection, written)

    def _begin(self, now: int, connection: Connection, record: SessionRecord | None) -> None:
        """Begins a new session, and ends what an earlier session left at its owners."""
        connection.is_persistent = connection.expiry_s > 0
        connection.session = self._context.native_api.open_session(SessionState())
        if record is None:
            return
        if connection.expiry_s:
            connection.has_record = True
            self._session_store.save_changed(now, connection, None)
        else:
            self._session_store.save_ended(now, connection.client_name)
        if record.has_pool_client:
            self._open_pool_client(now, connection, clean_start=True)
            self._mqtt_subscriptions.sweep(now, connection, record.subscriptions + record.stale_subscriptions)

    def _register(self, now: int, connection: Connection) -> None:
        """Registers the will with its topic's owner, in case this gateway dies."""
        connection.will = _absolute(connection.event.will, connection.workspace)
        will = None if connection.will is None else wills.registered_will(connection.will)
        if will is None:
            return
        if connection.pool_client is None:
            self._open_pool_client(now, connection, clean_start=connection.starts_clean)
        assert connection.pool_client is not None, "it was just opened"
        connection.awaited.add(_WILL)
        self._context.network_clients.control(connection.pool_client).set_will(
            now, will, timeout=_RESUME_TIMEOUT
        )
        self._context.network_clients.reschedule(connection.pool_client)

    def _open_pool_client(self, now: int, connection: Connection, *, clean_start: bool) -> None:
        connection.pool_client = self._context.network_clients.open(
            now,
            connection.client_name,
            connection.expiry_s,
            clean_start=clean_start,
            is_kept=connection.is_persistent,
        )

    # CONNACK

    def _accept(self, now: int, connection: Connection) -> None:
        self._resumptions.cancel(connection)
        connection.state_machine.handle(Event.READY)
        connection.connected_at_us = self._context.clock.unix_us(now)
        if connection.until_s is not None:
            self._admissions.set(
                connection.id, now + connection.until_s * SECOND - connection.connected_at_us
            )
        self._context.count("accepted")
        connect_request, limits, event = connection.connect_request, self._context.limits, connection.event
        assert connection.session is not None, "it was opened"
        assert connection.acl is not None, "it was admitted"
        accept = Accept(
            session=connection.session,
            client_id=connection.client_id,
            session_present=connection.was_present,
            acl=connection.acl,
            in_flight=limits.in_flight,
            queue_messages=limits.queue_messages,
            queue_bytes=limits.queue_bytes,
            rate=limits.rate,
            workspace=connection.workspace.name,
            is_distributed=self._context.settings.listeners[event.listener].is_distributed,
            assigned_client_id=connection.client_id if connect_request.assigned else None,
            server_keep_alive_s=connect_request.keep_alive_s,
            session_expiry_s=connect_request.changed_expiry_s,
            auth_method=event.auth_method,
            auth_data=connection.auth_data,
        )
        self._context.native_api.accept(connection.id, accept)
        username, is_present = connection.username, connection.was_present
        self._context.events.connected(event, connection.client_name, username, is_present=is_present)
        self.pending_connects.accepted(now, connection)

    def _refuse_unnamed(self, now: int, event: ConnectEvent, refusal: Refusal) -> None:
        self._context.count("refused")
        self._context.events.refused(now, event, refusal.code, refusal.text)
        reference = self._context.settings.server_reference if self.is_stopping else ""
        self._context.native_api.refuse(
            event.connection,
            refusal.code,
            text=refusal.text if event.wants_problem_information else "",
            server_reference=reference or None,
        )


def _absolute(will: WillMessage | None, workspace: Workspace) -> WillMessage | None:
    """A will with the name of its topic in the network."""
    topic = None if will is None else workspace.absolute(will.topic)
    return None if will is None or topic is None else replace(will, topic=topic)
