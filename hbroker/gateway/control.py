"""The control of a gateway: gives each event of the native core to the class that decides on it.

Three streams come in: events of the pool clients (links, answers of owners), messages of the network for the
gateway itself (claims, records, requests), and the packets of MQTT clients. At its start a gateway subscribes
to the topics of the gateways. It is ready for clients when it has the records of all existing sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Final

from hbroker._native import LinkDownEvent
from hbroker.config import GatewaySettings
from hbroker.gateway.access.access_lists import AccessLists
from hbroker.gateway.access.policy import Check, Decision, Policy
from hbroker.gateway.admin_requests import AdminRequests
from hbroker.gateway.connect.connect_handler import ConnectHandler
from hbroker.gateway.connect.disconnect_handler import DisconnectHandler
from hbroker.gateway.connect.takeover import Takeover
from hbroker.gateway.connections.connection import Connection, State
from hbroker.gateway.connections.disconnect_queue import DisconnectQueue
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.events import GatewayEvent
from hbroker.gateway.native_api import (
    AuthEvent,
    ClosedEvent,
    ConnectEvent,
    MqttEvent,
    NativeApi,
    SubscribeEvent,
    UnsubscribeEvent,
    WillMessage,
)
from hbroker.gateway.network_clients import SHARED, NetworkClients
from hbroker.gateway.outbox import Outbox, OutboxMessage
from hbroker.gateway.reason_codes import Code
from hbroker.gateway.records.client_id_claims import StampClock
from hbroker.gateway.records.gateways import GatewayRecords
from hbroker.gateway.records.record_authentication import CLAIMS, GATEWAYS, REQUESTS, SESSIONS
from hbroker.gateway.records.session_records import SessionRecords
from hbroker.gateway.sessions.presence import GatewayPresence
from hbroker.gateway.sessions.session_store import SessionStore
from hbroker.gateway.sessions.startup import Startup
from hbroker.gateway.subscriptions.mqtt_subscriptions import MqttSubscriptions, PendingAck
from hbroker.gateway.subscriptions.sys_topics import SysTopics
from hbroker.protocol.admin.audit import Audit, audit_topic
from hbroker.protocol.core import Event
from hbroker.protocol.results import (
    Published,
    Subscribed,
    SubscriptionFailed,
    TakenOver,
    Unsubscribed,
    WillRefused,
    WillSet,
)
from hbroker.protocol.timers import SECOND, earliest

if TYPE_CHECKING:
    from hbroker._native import Message

__all__ = ["Gateway"]

_ID_BITS: Final = 48
_REFRESH_AFTER: Final = 3 * SECOND
_MOST_AUDIT: Final = 100
"""Records of the audit that are published at a time, and are not distributed yet."""
_AUDIT_FOR: Final = 10 * SECOND
"""A record that was not distributed until then is given up."""


class Gateway:
    """Every decision of one gateway. Times are microseconds of one monotonic clock.

    `run`: a random number of this run. `publisher`: the publisher id of the shared pool client's core.
    `unix_offset_us`: the wall clock less that monotonic clock. `process_counters`: counters of the process,
    for `$SYS/broker`.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        native_api: NativeApi,
        random: Random,
        policy: Policy,
        *,
        run: int,
        publisher: int,
        unix_offset_us: int,
        version: str = "",
        process_counters: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        ids = count(random.getrandbits(_ID_BITS))  # nodes may still hold listener ids of an earlier run
        gateways = GatewayRecords(settings.name, run)
        self._publisher = publisher
        self._process_counters = process_counters
        context = GatewayContext(
            settings=settings,
            native_api=native_api,
            random=random,
            ids=ids,
            clock=StampClock(run, unix_offset_us),
            gateways=gateways,
            network_clients=NetworkClients(
                native_api, random, settings.root, settings.join_key, settings.name, ids
            ),
            outbox=Outbox(native_api.member(SHARED), random, unix_offset_us),
            records=SessionRecords(settings.join_key, gateways, unix_offset_us),
            policy=policy,
            access=AccessLists(native_api, policy),
            limits=settings.limits,
        )
        self._context = context
        self._sys = SysTopics(native_api, self.counters, version)
        self._mqtt_subscriptions = MqttSubscriptions(
            context, self._sys, self._send_or_save, self._session_ready
        )
        self._session_store = SessionStore(context)
        parts = (context, self._mqtt_subscriptions, self._session_store)
        self._disconnect_handler = DisconnectHandler(*parts)
        self._disconnect_queue = DisconnectQueue(context.connection_table, self._closed)
        self._connect_handler = ConnectHandler(*parts, self._disconnect_handler, self._disconnect_queue)
        self._admin_requests = AdminRequests(context, self._disconnect_handler)
        self._takeover = Takeover(
            context,
            self._disconnect_handler,
            self._disconnect_queue,
            self._connect_handler.pending_connects,
        )
        self._startup = Startup(context)
        self._refresh_at: int | None = None
        self._presence = GatewayPresence(context)
        self._audit = Audit(self._send_audit)
        self._audit_under_way = 0

    # In

    def start(self, now: int) -> None:
        """Begins to get the records of the existing sessions. `is_ready` says when clients may connect."""
        self._startup.start(now)

    def announce(self, now: int, listeners: tuple[str, ...]) -> None:
        """Publishes that this gateway is present, and the URLs of its listeners."""
        self._presence.announce(now, listeners)

    def handle_event(self, now: int, pool_client: int, event: Event) -> None:
        """Handles an event of one pool client's core."""
        if pool_client == SHARED and isinstance(event, LinkDownEvent):
            self._refresh_at = now + _REFRESH_AFTER
        self._context.network_clients.handle_event(now, pool_client, event)
        self._handle_results(now)

    def handle_message(self, now: int, pool_client: int, message: Message) -> None:
        """Handles a message that is for no session of an MQTT client.

        A message for the gateway itself is acknowledged when the gateway has done what the message asks for.
        """
        topic, payload = message.topic, message.payload
        if pool_client != SHARED:  # the subscription has ended in the meantime
            if message.qos:
                self._context.native_api.member(pool_client).handled([message.copy_id])
            return
        if message.retained and topic.startswith(SESSIONS):
            self._startup.handle_retained(now, topic, payload)
        if message.publisher == self._publisher:
            pass  # This gateway applied its own message when it published it.
        elif topic.startswith(CLAIMS):
            self._takeover.handle_claims(now, message, lambda now, is_distributed: self._handled(message))
            self._handle_results(now)
            return
        elif topic.startswith(SESSIONS):
            self._handle_record(now, topic, payload)
        elif topic.startswith(GATEWAYS):
            changed = self._presence.handle_message(now, topic, payload)
            if changed is not None:
                self._context.records.gateway_changed(now, changed)
        elif topic.startswith(REQUESTS) and not message.retained:
            self._admin_requests.handle_request(now, topic, payload)
        self._handled(message)

    def handle_mqtt(self, now: int, event: MqttEvent) -> None:
        """Handles a packet of an MQTT client, or the end of its connection."""
        if isinstance(event, ConnectEvent):
            self._disconnect_queue.count_connect()
            self._connect_handler.handle_connect(now, event)
            self._handle_results(now)
            return
        connection = self._context.connection_table.get(event.connection)
        if connection is None:
            return  # This side has ended it in the meantime.
        code: Code | None = None
        match event:
            case ClosedEvent():
                self._connect_handler.handle_closed(connection)
                self._disconnect_queue.add(now, connection, event)
            case AuthEvent():
                code = self._connect_handler.handle_auth(now, connection, event)
            case SubscribeEvent() if connection.state is State.OPEN:
                code = self._mqtt_subscriptions.subscribe(now, connection, event)
            case UnsubscribeEvent() if connection.state is State.OPEN:
                self._mqtt_subscriptions.unsubscribe(now, connection, event)
        if code is not None:
            self._disconnect_handler.disconnect(now, connection, code)
        self._handle_results(now)

    def handle_decision(self, now: int, number: int, decision: Decision) -> None:
        """Handles the result of a check (`poll_check`)."""
        self._connect_handler.handle_decision(now, number, decision)
        self._handle_results(now)

    def handle_timeout(self, now: int) -> None:
        """Does everything that is due at `now`."""
        self._context.network_clients.handle_timeout(now)
        self._handle_results(now)
        self._context.outbox.handle_timeout(now)
        self._connect_handler.handle_timeout(now)
        self._mqtt_subscriptions.handle_timeout(now)
        self._session_store.handle_timeout(now)
        self._disconnect_queue.handle_timeout(now)
        self._presence.handle_timeout(now)
        self._audit.handle_timeout(now)
        if self.is_ready:
            self._disconnect_handler.handle_timeout(now)
            self._sys.handle_timeout(now)
        if self._refresh_at is not None and self._refresh_at <= now:
            self._refresh_at = None
            self._presence.renew(now)
            self._session_store.refresh(now)
        if self._startup.handle_timeout(now):
            self._sys.handle_timeout(now)
        self._handle_results(now)

    def reload(self, now: int, policy: Policy, settings: GatewaySettings) -> None:
        """Puts a new policy, new limits and new listeners into force at once.

        A client that the new policy would not admit is disconnected. The others notice nothing. A connection
        keeps the limits of its queue and of its messages in flight that held at its CONNECT.
        """
        context = self._context
        context.policy, context.limits = policy, settings.limits
        context.settings = replace(
            context.settings, listeners=settings.listeners, workspaces=settings.workspaces
        )
        context.access.reload(policy)
        self._connect_handler.policy_changed()
        for connection in self._context.connection_table.all():
            if connection.acl is None:
                continue
            if not policy.still_admits(connection.username, connection.client_id, connection.proof):
                self._disconnect_handler.disconnect(now, connection, Code.NOT_AUTHORIZED)
                continue
            former, connection.acl = (
                connection.acl,
                context.access.of(connection.username, connection.client_id),
            )
            if connection.state is State.OPEN:
                context.native_api.assign_acl(connection.id, connection.acl)
            context.access.release(former)

    def audit(self, now: int, event: str, fields: Mapping[str, object]) -> None:
        """Publishes an event of this gateway below `$SYS/audit` (docs/protocol.md §5.12). `fields`: its whole
        record."""
        self._audit.add(now, event, fields)

    def stop(self, now: int) -> None:
        """Refuses new clients and disconnects all others. Their sessions wait for them at other gateways."""
        self._connect_handler.is_stopping = True
        for connection in self._context.connection_table.all():
            self._disconnect_handler.disconnect(now, connection, Code.SERVER_SHUTTING_DOWN)
        self._presence.withdraw(now)
        self._handle_results(now)

    def leave(self) -> None:
        """The shared pool client leaves its owners and ends its session there."""
        self._context.network_clients.control(SHARED).leave(end_session=True)

    # Out

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        context = self._context
        return earliest(
            context.network_clients.poll_timeout(),
            context.outbox.poll_timeout(),
            self._connect_handler.poll_timeout(),
            self._mqtt_subscriptions.poll_timeout(),
            self._session_store.poll_timeout(),
            self._disconnect_queue.poll_timeout(),
            context.records.poll_timeout() if self.is_ready else None,
            self._sys.poll_timeout() if self.is_ready else None,
            self._startup.poll_timeout(),
            self._presence.poll_timeout(),
            self._audit.poll_timeout(),
            self._refresh_at,
        )

    def poll_check(self, now: int) -> tuple[int, Check] | None:
        """The next check to run in a thread; None: there is none, or enough of them are running.

        Call it again after each `handle_decision`.
        """
        return self._connect_handler.poll_check(now)

    def poll_event(self) -> GatewayEvent | None:
        """The next event to log; None: there is none now."""
        return self._context.events.poll()

    @property
    def is_ready(self) -> bool:
        """Whether the gateway knows the sessions of the other gateways, and can take clients."""
        return self._startup.is_over

    @property
    def is_idle(self) -> bool:
        """Whether no client is left and every message of the outbox is distributed."""
        return len(self._context.connection_table) == 0 and len(self._context.outbox) == 0

    def counters(self) -> dict[str, int]:
        """All counters by name: of the native core, of the process, and of the decisions."""
        counts = self._connect_handler.counters()
        connections = list(self._context.connection_table.open())
        filters = [filter for connection in connections for filter in connection.subscriptions]
        offline = self._context.records.offline_count
        return {
            **self._process_counters(),
            **self._context.native_api.gateway_counters(),
            **counts,
            "sockets": counts["connects"],
            "connections": len(connections),
            "connections_most": self._context.connection_table.most,
            "sessions": len(connections) + offline,
            "sessions_offline": offline,
            "subscriptions": len(filters),
            "shared_subscriptions": sum(filter.startswith("$share/") for filter in filters),
            "members": len(self._context.network_clients),
            "records": len(self._context.records),
            "letters": len(self._context.outbox),
        }

    # Audit

    def _send_audit(self, now: int, event: str, record: bytes) -> bool:
        if self._audit_under_way >= _MOST_AUDIT:
            return False
        topic = audit_topic(self._context.settings.name, event)
        assert topic is not None, "it is one of this gateway's events"
        self._audit_under_way += 1
        message = WillMessage(topic, record, qos=1)
        until = now + _AUDIT_FOR
        self._context.outbox.enqueue(
            now, OutboxMessage(message, self._audit_sent, ack_queued=True, until=until)
        )
        return True

    def _audit_sent(self, now: int, is_distributed: bool) -> None:
        self._audit_under_way -= 1
        if not is_distributed:
            self._audit.count_dropped()

    # Results of the pool clients

    def _handle_results(self, now: int) -> None:
        while (pair := self._context.network_clients.poll_result()) is not None:
            pool_client, result = pair
            match result:
                case Published():
                    self._context.outbox.handle_published(now, result.sequence, result.reason)
                case WillSet() | WillRefused() if pool_client == SHARED:
                    self._presence.handle_will(now, result)
                case WillSet() | WillRefused():
                    connection = self._of_pool_client(pool_client)
                    if connection is not None:
                        self._connect_handler.handle_will(now, connection)
                case TakenOver():
                    self._handle_taken_over(now, pool_client)
                case Subscribed() | SubscriptionFailed() | Unsubscribed():
                    if not self._startup.handle_result(now, result):
                        self._mqtt_subscriptions.handle_result(now, pool_client, result)

    def _of_pool_client(self, pool_client: int) -> Connection | None:
        client = self._context.network_clients.client_of(pool_client)
        connection = None if client is None else self._context.connection_table.of_client(client)
        return connection if connection is not None and connection.pool_client == pool_client else None

    # The other gateways

    def _handle_record(self, now: int, topic: str, payload: bytes) -> None:
        here = self._context.records.client_connected_here(topic)
        connection = None if here is None else self._context.connection_table.of_client(here)
        records = self._context.records
        is_true = records.handle_payload(now, topic, payload)
        self._context.clock.observe(now, records.stamp_of(topic))
        if connection is not None and records.is_over(topic):
            self._session_store.save_changed(now, connection, None)  # Another gateway took this one for dead.
        elif not is_true:
            self._session_store.correct_later(now, topic)

    def _handle_taken_over(self, now: int, pool_client: int) -> None:
        connection = self._of_pool_client(pool_client)
        if connection is None:
            self._context.network_clients.close_now(now, pool_client)
        else:
            self._takeover.handle_taken_over(now, connection)

    def _handled(self, message: Message) -> None:
        if message.qos:
            self._context.native_api.member(SHARED).handled([message.copy_id])

    # MQTT clients

    def _closed(self, now: int, connection: Connection, event: ClosedEvent) -> None:
        if connection.state is State.OPEN:
            pair = event.cause, event.reason
            self._context.events.disconnected(connection.event, connection.client_name, *pair)
        changed = event.session_expiry_s
        is_clean = event.reason == Code.SUCCESS
        if changed and not connection.expiry_s and event.reason is not None:
            is_clean = False  # MQTT-3.1.2-23 forbids it: a protocol error, so the will is published.
        reason = event.reason if event.reason is None or is_clean else max(event.reason, 1)
        self._disconnect_handler.end(now, connection, reason=reason, expiry_s=changed)

    def _send_or_save(self, now: int, ack: PendingAck) -> None:
        """All codes of a SUBACK or UNSUBACK are known.

        The first answer of a persistent session waits until the other gateways know the session. They hear of
        later changes a little after the answer.
        """
        connection = ack.connection
        if not ack.changed or not connection.expiry_s:
            self._mqtt_subscriptions.send(ack)
        elif connection.has_record:
            self._mqtt_subscriptions.send(ack)
            self._session_store.save_changed(now, connection, None)
        else:
            self._session_store.save_changed(
                now, connection, lambda now, is_distributed: self._mqtt_subscriptions.send(ack)
            )

    def _session_ready(self, now: int, connection: Connection) -> None:
        self._connect_handler.handle_ready(now, connection)
