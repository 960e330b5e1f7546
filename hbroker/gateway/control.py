"""A gateway's control: where what the native core tells finds the concept that decides on it.

Three streams come in: the events of members (links, answers of owners), messages of the network for the
gateway itself (claims, records, requests), and what MQTT clients ask. A gateway begins by subscribing to
what gateways tell each other, and is ready for clients when it has the sessions that there are.
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
from hbroker.gateway.access.policy import Check, Policy, Verdict
from hbroker.gateway.admin.events import Notice
from hbroker.gateway.admin.requests import Orders
from hbroker.gateway.admin.sys_topics import SysTopics
from hbroker.gateway.connect.connect import Opening
from hbroker.gateway.connect.connection import Connection, State
from hbroker.gateway.connect.connection_table import Roster
from hbroker.gateway.connect.disconnect import Closing
from hbroker.gateway.connect.disconnect_queue import Departures
from hbroker.gateway.context import Common
from hbroker.gateway.native_api import (
    AuthEvent,
    Border,
    ClosedEvent,
    ConnectEvent,
    MqttEvent,
    SessionOverflowEvent,
    SubscribeEvent,
    UnsubscribeEvent,
)
from hbroker.gateway.outbox import Outbox
from hbroker.gateway.reason_codes import Code
from hbroker.gateway.sessions.announcements import Announcing
from hbroker.gateway.sessions.claims import Clock
from hbroker.gateway.sessions.gateways import Gateways
from hbroker.gateway.sessions.record_authentication import CLAIMS, GATEWAYS, REQUESTS, SESSIONS
from hbroker.gateway.sessions.records import Records
from hbroker.gateway.sessions.session_store import Keeping
from hbroker.gateway.sessions.startup import Starting
from hbroker.gateway.sessions.takeover import Yielding
from hbroker.gateway.subscriptions.mqtt_subscriptions import Answer, Bridge
from hbroker.gateway.subscriptions.network_clients import SHARED, Members
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
from hbroker.protocol.timer_queue import earliest
from hbroker.protocol.timers import SECOND

if TYPE_CHECKING:
    from hbroker._native import Message

__all__ = ["Gateway"]

_ID_BITS: Final = 48
_REFRESH_AFTER: Final = 3 * SECOND


class Gateway:
    """Every decision of one gateway. Times are microseconds of one monotonic clock.

    `run`: random, of this run. `publisher`: of the shared member's core. `unix_offset_us`: what the wall
    clock has more than that clock. `vitals`: counters of the process, for `$SYS/broker`.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        border: Border,
        random: Random,
        policy: Policy,
        *,
        run: int,
        publisher: int,
        unix_offset_us: int,
        version: str = "",
        vitals: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        ids = count(random.getrandbits(_ID_BITS))  # nodes may hold what an earlier run's listeners asked for
        gateways = Gateways(settings.name, run)
        self._publisher = publisher
        self._vitals = vitals
        self._common = Common(
            settings=settings,
            border=border,
            random=random,
            ids=ids,
            clock=Clock(run, unix_offset_us),
            gateways=gateways,
            members=Members(border, random, settings.root, settings.join_key, settings.name, ids),
            outbox=Outbox(border.member(SHARED), random, unix_offset_us),
            records=Records(settings.join_key, gateways, unix_offset_us),
            policy=policy,
            access=AccessLists(border, policy),
            limits=settings.limits,
        )
        self._roster = Roster()
        self._sys = SysTopics(border, self.counters, version)
        self._bridge = Bridge(self._common, self._sys, self._answered, self._session_ready)
        self._keeping = Keeping(self._common)
        self._closing = Closing(self._common, self._roster, self._bridge, self._keeping)
        self._opening = Opening(self._common, self._roster, self._bridge, self._keeping, self._closing)
        self._departures = Departures(self._roster, self._closed)
        self._orders = Orders(self._common, self._roster, self._closing)
        self._yielding = Yielding(
            self._common, self._roster, self._closing, self._departures, self._opening.succession
        )
        self._starting = Starting(self._common.members)
        self._refresh_at: int | None = None
        self._announcing = Announcing(self._common)

    # In

    def start(self, now: int) -> None:
        """Joins the other gateways. `is_ready` says when clients can be taken."""
        self._starting.start(now)

    def announce(self, now: int, listeners: tuple[str, ...]) -> None:
        """Tells the others that this gateway is there, and where it takes clients."""
        self._announcing.announce(now, listeners)

    def handle_event(self, now: int, member: int, event: Event) -> None:
        """An event of one member's core."""
        if member == SHARED and isinstance(event, LinkDownEvent):
            self._refresh_at = now + _REFRESH_AFTER
        self._common.members.handle_event(now, member, event)
        self._take_outcomes(now)

    def handle_message(self, now: int, member: int, message: Message) -> None:
        """A message that is for no session. One for the gateway itself is acknowledged when what it asks
        for is done."""
        topic, payload = message.topic, message.payload
        if member != SHARED:  # of a subscription that ended in the meantime
            if message.qos:
                self._common.border.member(member).handled([message.copy_id])
            return
        if message.publisher == self._publisher:
            pass  # What this gateway says holds here since it said it.
        elif topic.startswith(CLAIMS):
            self._yielding.handle_claims(now, message, lambda now, is_distributed: self._handled(message))
            self._take_outcomes(now)
            return
        elif topic.startswith(SESSIONS):
            self._take_record(now, topic, payload)
        elif topic.startswith(GATEWAYS):
            changed = self._announcing.handle_message(now, topic, payload)
            if changed is not None:
                self._common.records.gateway_changed(now, changed)
        elif topic.startswith(REQUESTS) and not message.retained:
            self._orders.handle_request(now, topic, payload)
        self._handled(message)

    def handle_mqtt(self, now: int, event: MqttEvent) -> None:
        """What an MQTT client asks, or its end."""
        if isinstance(event, ConnectEvent):
            self._departures.hurry(now, event.client_id)
            self._departures.came()
            self._opening.handle_connect(now, event)
            self._take_outcomes(now)
            return
        if isinstance(event, SessionOverflowEvent):
            self._overflowed(now, event.session)
            return
        connection = self._roster.get(event.connection)
        if connection is None:
            return  # It was ended from this side in the meantime.
        code: Code | None = None
        match event:
            case ClosedEvent():
                self._departures.add(now, connection, event)
            case AuthEvent():
                code = self._opening.handle_auth(now, connection, event)
            case SubscribeEvent() if connection.state is State.OPEN:
                code = self._bridge.subscribe(now, connection, event)
            case UnsubscribeEvent() if connection.state is State.OPEN:
                self._bridge.unsubscribe(now, connection, event)
        if code is not None:
            self._closing.disconnect(now, connection, code)
        self._take_outcomes(now)

    def handle_verdict(self, now: int, number: int, verdict: Verdict) -> None:
        """What a check came to (`poll_check`)."""
        self._opening.handle_verdict(now, number, verdict)
        self._take_outcomes(now)

    def handle_timeout(self, now: int) -> None:
        """Does what is due."""
        self._common.members.handle_timeout(now)
        self._take_outcomes(now)
        self._common.outbox.handle_timeout(now)
        self._opening.handle_timeout(now)
        self._bridge.handle_timeout(now)
        self._keeping.handle_timeout(now)
        self._departures.handle_timeout(now)
        self._announcing.handle_timeout(now)
        if self.is_ready:
            self._closing.handle_timeout(now)
            self._sys.handle_timeout(now)
        if self._refresh_at is not None and self._refresh_at <= now:
            self._refresh_at = None
            self._announcing.renew(now)
            self._keeping.refresh(now)
        if self._starting.handle_timeout(now):
            self._sys.handle_timeout(now)
        self._take_outcomes(now)

    def reload(self, now: int, policy: Policy, settings: GatewaySettings) -> None:
        """Other rules, and of the settings other limits and listeners, at once. Whoever would not be admitted
        any more is disconnected; all others notice nothing. Limits of what is queued or in flight are those
        of the time of their CONNECT."""
        common = self._common
        common.policy, common.limits = policy, settings.limits
        common.settings = replace(common.settings, listeners=settings.listeners)
        common.access.reload(policy)
        self._opening.policy_changed()
        for connection in list(self._roster.all()):
            if connection.acl is None:
                continue
            if not policy.still_admits(connection.username, connection.client_id, connection.proof):
                self._closing.disconnect(now, connection, Code.NOT_AUTHORIZED)
                continue
            former, connection.acl = (
                connection.acl,
                common.access.of(connection.username, connection.client_id),
            )
            if connection.state is State.OPEN:
                common.border.assign_acl(connection.id, connection.acl)
            common.access.release(former)

    def stop(self, now: int) -> None:
        """Takes no more clients, and ends those that there are: their sessions wait for them elsewhere."""
        self._opening.is_stopping = True
        for connection in self._roster.all():
            self._closing.disconnect(now, connection, Code.SERVER_SHUTTING_DOWN)
        self._announcing.withdraw(now)
        self._take_outcomes(now)

    def leave(self) -> None:
        """The last word to the owners."""
        self._common.members.control(SHARED).leave(end_session=True)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        common = self._common
        return earliest(
            common.members.poll_timeout(),
            common.outbox.poll_timeout(),
            self._opening.poll_timeout(),
            self._bridge.poll_timeout(),
            self._keeping.poll_timeout(),
            self._departures.poll_timeout(),
            common.records.poll_timeout() if self.is_ready else None,
            self._sys.poll_timeout() if self.is_ready else None,
            self._starting.poll_timeout(),
            self._announcing.poll_timeout(),
            self._refresh_at,
        )

    def poll_check(self, now: int) -> tuple[int, Check] | None:
        """A decision that takes time, to be made in a thread; None: there is none now, or enough of them are
        being made. Asked again after each `handle_verdict`."""
        return self._opening.poll_check(now)

    def poll_notice(self) -> Notice | None:
        """What is to be logged next; None: there is nothing now."""
        return self._common.notices.poll()

    @property
    def is_ready(self) -> bool:
        """Whether it knows the other gateways' sessions, and can take clients."""
        return self._starting.is_over

    @property
    def is_idle(self) -> bool:
        """Whether no client is left, and all that was said of them is distributed."""
        return len(self._roster) == 0 and len(self._common.outbox) == 0

    def counters(self) -> dict[str, int]:
        """The border's, the process's and what the decisions count, by name."""
        counts = self._opening.counters()
        connections = list(self._roster.open())
        filters = [filter for connection in connections for filter in connection.subscriptions]
        away = self._common.records.away_count
        return {
            **self._vitals(),
            **self._common.border.gateway_counters(),
            **counts,
            "sockets": counts["connects"],
            "connections": len(connections),
            "connections_most": self._roster.most,
            "sessions": len(connections) + away,
            "sessions_away": away,
            "subscriptions": len(filters),
            "shared_subscriptions": sum(filter.startswith("$share/") for filter in filters),
            "members": len(self._common.members),
            "records": len(self._common.records),
            "letters": len(self._common.outbox),
        }

    # What its members tell

    def _take_outcomes(self, now: int) -> None:
        while (told := self._common.members.poll_outcome()) is not None:
            member, outcome = told
            match outcome:
                case Published():
                    self._common.outbox.handle_published(now, outcome.sequence, outcome.reason)
                case WillSet() | WillRefused() if member == SHARED:
                    self._announcing.handle_will(now, outcome)
                case WillSet() | WillRefused():
                    connection = self._of_member(member)
                    if connection is not None:
                        self._opening.handle_will(now, connection)
                case TakenOver():
                    self._lost(now, member)
                case Subscribed() | SubscriptionFailed() | Unsubscribed():
                    if not self._starting.handle_outcome(now, outcome):
                        self._bridge.handle_outcome(now, member, outcome)

    def _of_member(self, member: int) -> Connection | None:
        client = self._common.members.client_of(member)
        connection = None if client is None else self._roster.of_client(client)
        return connection if connection is not None and connection.member == member else None

    # The other gateways

    def _take_record(self, now: int, topic: str, payload: bytes) -> None:
        here = self._common.records.client_here(topic)
        connection = None if here is None else self._roster.of_client(here)
        self._starting.handle_record(now)
        records = self._common.records
        is_true = records.take(now, topic, payload)
        self._common.clock.saw(now, records.stamp_of(topic))
        if connection is not None and records.is_over(topic):
            self._keeping.changed(now, connection, None)  # Another took this gateway for gone.
        elif not is_true:
            self._keeping.contradict(now, topic)

    def _lost(self, now: int, member: int) -> None:
        connection = self._of_member(member)
        if connection is None:
            self._common.members.drop(now, member)
        else:
            self._yielding.lose(now, connection)

    def _handled(self, message: Message) -> None:
        if message.qos:
            self._common.border.member(SHARED).handled([message.copy_id])

    # MQTT clients

    def _closed(self, now: int, connection: Connection, event: ClosedEvent) -> None:
        if connection.state is State.OPEN:
            told = event.cause, event.reason
            self._common.notices.disconnected(connection.event, connection.client_id, *told)
        changed = event.session_expiry_s
        is_clean = event.reason == Code.SUCCESS
        if changed and not connection.expiry_s and event.reason is not None:
            is_clean = False  # MQTT-3.1.2-23 forbids it: a protocol error, and no orderly end.
        reason = event.reason if event.reason is None or is_clean else max(event.reason, 1)
        self._closing.end(now, connection, reason=reason, expiry_s=changed)

    def _overflowed(self, now: int, session: int) -> None:
        """A session ends while it is without a client: before CONNACK, or behind a connection that broke."""
        for connection in self._roster.all():
            if connection.session == session:
                self._common.count("sessions_overflowed")
                self._closing.disconnect(now, connection, Code.QUOTA_EXCEEDED, ends_session=True)
                break
        self._take_outcomes(now)

    def _answered(self, now: int, answer: Answer) -> None:
        """An answer has all its codes. The first one of a session that is to be kept waits until the other
        gateways know of the session; later changes are told them soon."""
        connection = answer.connection
        if not answer.changed or not connection.expiry_s:
            self._bridge.send(answer)
        elif connection.has_record:
            self._bridge.send(answer)
            self._keeping.changed(now, connection, None)
        else:
            self._keeping.changed(now, connection, lambda now, is_distributed: self._bridge.send(answer))

    def _session_ready(self, now: int, connection: Connection) -> None:
        self._opening.handle_ready(now, connection)
