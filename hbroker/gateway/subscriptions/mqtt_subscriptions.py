"""MQTT subscriptions as listeners of pool clients: SUBSCRIBE, UNSUBSCRIBE, and their results.

One MQTT subscription is one listener of one pool client. The pool client has one network subscription for all
its listeners with the same filter. A SUBACK is sent when each of its filters is complete at every owner
(docs/protocol.md §6.2), or has failed. A subscription that is made again (MQTT 5 §3.8.4) is a new listener,
which replaces the former one.

A message that matches several subscriptions of a session arrives once for each pool client that has some of
them. So if the own pool client of a persistent session has one subscription, it has all of them: those at the
shared pool client move to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hbroker.config import GatewayLimits
from hbroker.gateway.access.acl_file import may_read_some
from hbroker.gateway.connections.connection import Connection, MqttSubscription, State
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import SubscribeEvent, SubscribeOptions, UnsubscribeEvent
from hbroker.gateway.network_clients import SHARED
from hbroker.gateway.reason_codes import Code, suback_code
from hbroker.gateway.records.session_records import SessionSubscription
from hbroker.gateway.subscriptions.sys_topics import SysTopics
from hbroker.protocol.packets import Reason
from hbroker.protocol.results import Result, Subscribed, SubscriptionFailed, Unsubscribed
from hbroker.protocol.subscriptions import shared
from hbroker.protocol.subscriptions.client.options import NewListener, Options
from hbroker.protocol.timers import SECOND, TimerQueue

__all__ = ["MqttSubscriptions", "PendingAck"]

SUBACK_TIMEOUT: Final = 10 * SECOND
"""How long a SUBACK waits for owners that do not answer."""
LONGEST_FILTER: Final = 64_000
"""Bytes of a filter that fits into one packet of the network, with the rest of a SUBSCRIBE (docs/protocol.md
§3.4)."""
_AGAIN: Final = SECOND
_SEND, _SEND_IF_NEW, _DO_NOT_SEND = 0, 1, 2
_DEFAULTS: Final = GatewayLimits()

_CODES: Final[dict[int, Code]] = {
    Reason.REASON_NOT_AUTHORIZED: Code.NOT_AUTHORIZED,
    Reason.REASON_TOPIC_FILTER_INVALID: Code.TOPIC_FILTER_INVALID,
    Reason.REASON_QUOTA_EXCEEDED: Code.QUOTA_EXCEEDED,
}


@dataclass(slots=True, eq=False)
class PendingAck:
    """A SUBACK or UNSUBACK that is not complete yet. `codes`: one for each filter; None: not known yet."""

    connection: Connection
    packet_id: int
    codes: list[int | None]
    is_suback: bool

    @property
    def is_complete(self) -> bool:
        """Whether every filter has its code."""
        return None not in self.codes

    @property
    def changed(self) -> bool:
        """Whether the SUBSCRIBE or UNSUBSCRIBE has changed the subscriptions of the session."""
        return any(code is not None and code < Code.NO_SUBSCRIPTION_EXISTED for code in self.codes)


@dataclass(slots=True, eq=False)
class _PendingFilter:
    ack: PendingAck
    index: int
    subscription: MqttSubscription
    former: MqttSubscription | None = None


class MqttSubscriptions:
    """All MQTT subscriptions of a gateway.

    `complete` is called with an answer that has all its codes; it then calls `send`, now or later. `ready` is
    called when a subscription of a resumed session is complete or has failed.
    """

    def __init__(
        self,
        context: GatewayContext,
        sys_topics: SysTopics,
        complete: Callable[[int, PendingAck], None],
        ready: Callable[[int, Connection], None],
    ) -> None:
        self._context = context
        self._native_api = context.native_api
        self._network_clients = context.network_clients
        self._sys = sys_topics
        self._complete = complete
        self._ready = ready
        self._by_listener: dict[int, tuple[Connection, MqttSubscription]] = {}
        self._pending_filters: dict[int, _PendingFilter] = {}
        self._swept: dict[int, Connection] = {}
        self._failed: TimerQueue[int] = TimerQueue()
        self._moving: dict[int, MqttSubscription] = {}
        """The former listener at the shared pool client, by the listener at the session's own pool client
        that replaces it once that is complete."""

    # In: MQTT

    def subscribe(self, now: int, connection: Connection, event: SubscribeEvent) -> Code | None:
        """Handles a SUBSCRIBE. Returns the code with which to close the connection; None: it will be
        answered."""
        if any(o.no_local and f.startswith(shared.PREFIX) for f, o in event.filters):
            return Code.PROTOCOL_ERROR  # MQTT-3.8.3-4
        ack = PendingAck(connection, event.packet_id, [None] * len(event.filters), is_suback=True)
        for index, (filter, options) in enumerate(event.filters):
            refusal = self._refusal(connection, filter)
            if refusal is not None:
                ack.codes[index] = suback_code(connection.event.version, refusal)
                continue
            group, plain = _split(connection, filter) or ("", filter)
            if connection.event.is_bridge:
                options = _for_bridge(options, group)
            subscription = MqttSubscription(0, None, filter, group, plain, options, event.identifier)
            self._make_subscription(now, ack, index, subscription)
        self._finish_if_complete(now, ack)
        return None

    def unsubscribe(self, now: int, connection: Connection, event: UnsubscribeEvent) -> None:
        """Handles an UNSUBSCRIBE."""
        ack = PendingAck(connection, event.packet_id, [None] * len(event.filters), is_suback=False)
        for index, filter in enumerate(event.filters):
            subscription = connection.unsubscribe(filter)
            if subscription is None:
                is_valid = shared.split(filter) is not None
                code = Code.NO_SUBSCRIPTION_EXISTED if is_valid else Code.TOPIC_FILTER_INVALID
                ack.codes[index] = code
                continue
            self._set_code(now, subscription.listener, subscription.options.qos)
            self._native_api.detach_listener(subscription.listener)
            if subscription.pool_client is None:
                ack.codes[index] = Code.SUCCESS
            else:
                self._pending_filters[subscription.listener] = _PendingFilter(ack, index, subscription)
            self._end(now, subscription)
        self._finish_if_complete(now, ack)

    def send(self, ack: PendingAck) -> None:
        """Sends the answer, and what waited for it."""
        connection = ack.connection
        if connection.state is not State.OPEN:
            return
        codes = [Code.UNSPECIFIED_ERROR if code is None else code for code in ack.codes]
        if not ack.is_suback:
            self._native_api.unsuback(connection.id, ack.packet_id, codes)
            return
        self._native_api.suback(connection.id, ack.packet_id, codes)
        self._sys.answered(connection.id, ack.packet_id)

    # In: sessions

    def restore(
        self, now: int, connection: Connection, subscriptions: tuple[SessionSubscription, ...]
    ) -> None:
        """Makes a session's subscriptions again, without retained messages. The connection awaits them.

        Those of one pool client are made together: if several of them match a message that waited at an
        owner, the message comes for each of them.
        """

        def needs_own(kept: SessionSubscription) -> bool:
            return kept.options.qos > 0 or kept.filter.startswith(shared.PREFIX)

        restored: dict[int, list[MqttSubscription]] = {}
        # In this order no subscription moves from the shared pool client to the session's own.
        for kept in sorted(subscriptions, key=needs_own, reverse=True):
            parts = _split(connection, kept.filter)
            if parts is None or kept.filter in connection.subscriptions:
                continue
            subscription = MqttSubscription(0, None, kept.filter, *parts, kept.options, kept.identifier)
            self._place(now, connection, subscription)
            self._attach(connection, subscription, _DO_NOT_SEND, packet_id=None)
            if subscription.pool_client is not None:
                restored.setdefault(subscription.pool_client, []).append(subscription)
                connection.awaited.add(subscription.listener)
                if subscription.pool_client != SHARED and subscription.options.qos:
                    connection.unconfirmed.add(subscription.listener)
        for pool_client, together in restored.items():
            self._subscribe(now, pool_client, together, _DO_NOT_SEND)

    def sweep(self, now: int, connection: Connection, subscriptions: tuple[SessionSubscription, ...]) -> None:
        """Ends what an earlier session left at its owners. The subscriptions lead to these owners
        (docs/protocol.md §6.4)."""
        assert connection.pool_client is not None, "a session that is swept has a member"
        control = self._network_clients.control(connection.pool_client)
        for kept in subscriptions:
            parts = _split(connection, kept.filter)
            if parts is None or not (parts[0] or kept.options.qos):
                continue
            options = Options(qos=kept.options.qos, retain_handling=_DO_NOT_SEND)
            listener = control.subscribe(now, parts[1], options, group=parts[0], timeout=SUBACK_TIMEOUT)
            self._swept[listener] = connection
            connection.awaited.add(listener)
        self._network_clients.reschedule(connection.pool_client)

    def release(self, now: int, connection: Connection) -> None:
        """Forgets the subscriptions of a connection that has ended.

        Its own pool client keeps its subscriptions; those at the shared pool client end.
        """
        for subscription in connection.subscriptions.values():
            self._by_listener.pop(subscription.listener, None)
            pending_filter = self._pending_filters.pop(subscription.listener, None)
            if pending_filter is not None and pending_filter.former is not None:
                self._by_listener.pop(pending_filter.former.listener, None)
                self._failed.cancel(pending_filter.former.listener)
            self._failed.cancel(subscription.listener)
            self._sys.remove(subscription.listener)
            moved = self._moving.pop(subscription.listener, None)
            if moved is not None:
                self._network_clients.control(SHARED).unsubscribe(now, moved.listener)
            if subscription.pool_client == SHARED:
                self._network_clients.control(SHARED).unsubscribe(now, subscription.listener)
                if pending_filter is not None and pending_filter.former is not None:
                    self._network_clients.control(SHARED).unsubscribe(now, pending_filter.former.listener)
        self._sys.closed(connection.id)
        for listener in [id for id in connection.awaited if isinstance(id, int)]:
            self._swept.pop(listener, None)
        if connection.subscriptions:
            self._network_clients.reschedule(SHARED)

    def handle_result(self, now: int, pool_client: int, result: Result) -> None:
        """Handles the result of a listener."""
        match result:
            case Subscribed(subscription=listener, resumed=is_resumed):
                self._end_moved(now, listener)
                self._set_code(now, listener, None)
                self._move_late(now, listener)
                self._end_swept(now, pool_client, listener)
                self._confirm_restored(now, listener, is_resumed=is_resumed)
            case Unsubscribed(subscription=listener):
                self._set_code(now, listener, Code.SUCCESS)
            case SubscriptionFailed(subscription=listener, reason=reason):
                self._fail(now, listener, reason)
                self._end_swept(now, pool_client, listener)

    def handle_timeout(self, now: int) -> None:
        """Makes failed subscriptions again that no SUBACK waits for."""
        for listener in self._failed.due(now):
            connection, subscription = self._by_listener.pop(listener)
            self._native_api.detach_listener(listener)
            again = replace(subscription, listener=0, pool_client=None)
            self._open(now, connection, again, _DO_NOT_SEND, ack=None)
            if listener in self._moving:
                self._moving[again.listener] = self._moving.pop(listener)

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return self._failed.next()

    # Making subscriptions

    def _refusal(self, connection: Connection, filter: str) -> Code | None:
        parts = shared.split(filter)
        if parts is None:
            return Code.TOPIC_FILTER_INVALID
        plain, absolute = parts[1], _split(connection, filter)
        is_hidden = plain.startswith("$") and plain.partition("/")[0] != "$SYS"
        if is_hidden or absolute is None:
            return Code.NOT_AUTHORIZED
        assert connection.acl is not None, "an open connection has a list"
        if not may_read_some(self._context.access.rules(connection.acl), plain):
            return Code.NOT_AUTHORIZED
        if len("/".join(absolute).encode()) > LONGEST_FILTER:
            return Code.QUOTA_EXCEEDED
        most = self._context.limits.subscriptions
        if filter not in connection.subscriptions and not connection.has_room(most, *absolute):
            return Code.QUOTA_EXCEEDED
        return None

    def _make_subscription(
        self, now: int, ack: PendingAck, index: int, subscription: MqttSubscription
    ) -> None:
        connection = ack.connection
        former = connection.subscriptions.get(subscription.filter)
        handling = subscription.options.retain_handling
        if handling == _SEND_IF_NEW:
            handling = _SEND if former is None else _DO_NOT_SEND
        if former is not None:
            self._set_code(now, former.listener, former.options.qos)
        self._open(now, connection, subscription, handling, ack=ack)
        if former is not None and former.pool_client == subscription.pool_client:
            self._native_api.detach_listener(former.listener)
        if subscription.pool_client is None:
            ack.codes[index] = subscription.options.qos
            if former is not None:
                self._end(now, former)
        else:
            self._pending_filters[subscription.listener] = _PendingFilter(ack, index, subscription, former)

    def _open(
        self,
        now: int,
        connection: Connection,
        subscription: MqttSubscription,
        handling: int,
        *,
        ack: PendingAck | None,
    ) -> None:
        """Makes the listener: in the session, and in the network unless its filter matches only
        $SYS/broker."""
        self._place(now, connection, subscription)
        packet_id = None if ack is None else ack.packet_id
        self._listen(now, connection, subscription, handling, packet_id)

    def _place(self, now: int, connection: Connection, subscription: MqttSubscription) -> None:
        """Chooses the pool client of a subscription."""
        if not self._sys.is_all_of(subscription.plain):
            subscription.pool_client = self._pool_client_for(now, connection, subscription)

    def _listen(
        self,
        now: int,
        connection: Connection,
        subscription: MqttSubscription,
        handling: int,
        packet_id: int | None,
    ) -> None:
        """Attaches the listener to the session, and then subscribes: retained messages come at once.

        `packet_id`: of the SUBACK for which these messages wait.
        """
        self._attach(connection, subscription, handling, packet_id)
        if subscription.pool_client is not None:
            self._subscribe(now, subscription.pool_client, [subscription], handling)

    def _attach(
        self, connection: Connection, subscription: MqttSubscription, handling: int, packet_id: int | None
    ) -> None:
        subscription.listener = next(self._context.ids)
        assert connection.session is not None, "a session that subscribes is there"
        self._native_api.attach_listener(
            subscription.listener,
            connection.session,
            subscription.plain,
            subscription.options,
            subscription.identifier,
            packet_id=packet_id,
        )
        connection.subscribe(subscription)
        self._by_listener[subscription.listener] = connection, subscription
        if not subscription.group:
            self._sys.add(subscription.listener, subscription.plain, connection.id, packet_id, handling)

    def _subscribe(
        self, now: int, pool_client: int, together: Sequence[MqttSubscription], handling: int
    ) -> None:
        self._network_clients.control(pool_client).subscribe_together(
            now,
            [self._new_listener(subscription, handling) for subscription in together],
            timeout=SUBACK_TIMEOUT,
        )
        self._network_clients.reschedule(pool_client)

    def _new_listener(self, subscription: MqttSubscription, handling: int) -> NewListener:
        limits = self._context.limits
        options = Options(
            qos=subscription.options.qos,
            retain_as_published=subscription.options.retain_as_published,
            retain_handling=_DO_NOT_SEND if subscription.group else handling,
            queue_messages=_requested(limits.queue_messages, _DEFAULTS.queue_messages),
            queue_bytes=_requested(limits.queue_bytes, _DEFAULTS.queue_bytes),
        )
        return NewListener(subscription.listener, (subscription.group, subscription.plain), options)

    def _pool_client_for(self, now: int, connection: Connection, subscription: MqttSubscription) -> int:
        """The session's own pool client if owners must keep messages for it, or count it in a shared group;
        otherwise the shared pool client."""
        needs_own = bool(subscription.group) or (
            connection.is_persistent and (subscription.options.qos > 0 or connection.has_own_subscriptions)
        )
        if not needs_own:
            return SHARED
        if connection.pool_client is None:
            connection.pool_client = self._network_clients.open(
                now,
                connection.client_name,
                connection.expiry_s,
                clean_start=connection.starts_clean,
                is_kept=not connection.starts_clean,
            )
        if connection.is_persistent:
            for other in list(connection.subscriptions.values()):
                if other.filter != subscription.filter:  # that one is made again as it is
                    self._move(now, connection, other)
        return connection.pool_client

    def _move_late(self, now: int, listener: int) -> None:
        """Moves a listener whose SUBACK was awaited when the others moved."""
        connection, subscription = self._by_listener.get(listener, (None, None))
        if connection and subscription and connection.is_persistent and connection.has_own_subscriptions:
            self._move(now, connection, subscription)

    def _move(self, now: int, connection: Connection, former: MqttSubscription) -> None:
        """Moves a listener from the shared pool client to the session's own. The former one ends when the new
        one is complete."""
        if former.pool_client != SHARED or former.listener in self._pending_filters:
            return
        again = replace(former, listener=0, pool_client=connection.pool_client)
        self._by_listener.pop(former.listener, None)
        self._failed.cancel(former.listener)
        self._listen(now, connection, again, _DO_NOT_SEND, packet_id=None)
        self._moving[again.listener] = former
        if former.listener in connection.awaited:
            connection.awaited.discard(former.listener)
            connection.awaited.add(again.listener)

    def _end_moved(self, now: int, listener: int) -> None:
        former = self._moving.pop(listener, None)
        if former is not None:
            self._native_api.detach_listener(former.listener)
            self._end(now, former)

    def _end(self, now: int, subscription: MqttSubscription) -> None:
        """Ends a listener everywhere."""
        self._end_moved(now, subscription.listener)
        self._by_listener.pop(subscription.listener, None)
        self._failed.cancel(subscription.listener)
        self._sys.remove(subscription.listener)
        if subscription.pool_client is not None:
            self._network_clients.control(subscription.pool_client).unsubscribe(now, subscription.listener)
            self._network_clients.reschedule(subscription.pool_client)

    # Results

    def _set_code(self, now: int, listener: int, code: int | None) -> None:
        """Sets the code of a filter. None: the granted QoS."""
        pending_filter = self._pending_filters.pop(listener, None)
        if pending_filter is None:
            return
        if pending_filter.former is not None:
            if pending_filter.former.pool_client != pending_filter.subscription.pool_client:
                self._native_api.detach_listener(pending_filter.former.listener)
            self._end(now, pending_filter.former)
        granted = pending_filter.subscription.options.qos if pending_filter.ack.is_suback else Code.SUCCESS
        pending_filter.ack.codes[pending_filter.index] = granted if code is None else code
        self._finish_if_complete(now, pending_filter.ack)

    def _fail(self, now: int, listener: int, reason: int) -> None:
        pending_filter = self._pending_filters.get(listener)
        if pending_filter is None:
            if listener in self._by_listener:
                self._failed.set(listener, now + _AGAIN)
                self._confirm_restored(now, listener, is_resumed=False)
            return
        connection, subscription = pending_filter.ack.connection, pending_filter.subscription
        self._by_listener.pop(listener, None)
        self._native_api.detach_listener(listener)
        self._sys.remove(listener)
        if connection.subscriptions.get(subscription.filter) is subscription:
            connection.unsubscribe(subscription.filter)
        code = _CODES.get(reason, Code.UNSPECIFIED_ERROR)
        self._set_code(now, listener, suback_code(connection.event.version, code))

    def _confirm_restored(self, now: int, listener: int, *, is_resumed: bool) -> None:
        entry = self._by_listener.get(listener)
        if entry is not None and listener in entry[0].awaited:
            entry[0].awaited.discard(listener)
            if is_resumed:
                entry[0].unconfirmed.discard(listener)
            self._ready(now, entry[0])

    def _end_swept(self, now: int, pool_client: int, listener: int) -> None:
        connection = self._swept.pop(listener, None)
        if connection is None or connection.pool_client != pool_client:
            return
        self._network_clients.control(pool_client).unsubscribe(now, listener)
        self._network_clients.reschedule(pool_client)
        connection.awaited.discard(listener)
        self._ready(now, connection)

    def _finish_if_complete(self, now: int, ack: PendingAck) -> None:
        if ack.is_complete and not ack.connection.is_over:
            self._complete(now, ack)


def _split(connection: Connection, filter: str) -> tuple[str, str] | None:
    """The group of a client's filter, and the rest as the network names it. None: it is not valid, or there
    is no such topic in the client's workspace."""
    group, plain = shared.split(filter) or ("", None)
    absolute = None if plain is None else connection.workspace.absolute(plain)
    return None if absolute is None else (group, absolute)


def _for_bridge(options: SubscribeOptions, group: str) -> SubscribeOptions:
    """The options of a bridge's subscription before MQTT 5.

    Such a bridge cannot ask for No Local, without which its own messages would go round, or for Retain As
    Published. Other brokers set both for bridges, too.
    """
    return replace(options, no_local=not group, retain_as_published=True)


def _requested(bound: int, default: int) -> int:
    """The bound of a queue that an owner is asked for; 0: its own.

    An owner takes a bound below its own for one that the client has chosen: then the queue may overflow while
    the client keeps up (docs/guarantees.md, "Slow subscribers"). A default is nobody's choice.
    """
    return 0 if bound == default else bound
