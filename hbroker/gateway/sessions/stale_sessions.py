"""What owners still hold for a client whose CONNACK reported that it has no session.

If an owner is lost, its part of a session is lost, too. CONNACK reports that (session present 0, MQTT 5
§3.2.2.1.1), and the client subscribes again. The other owners have acknowledged their messages for the client
to the publishers, so these messages are not discarded. The subscriptions stay at the owners, the session's
pool client is offline, and the messages come when the client has subscribed to the same filter again. If it
has not done so after `RESUBSCRIBE_TIMEOUT`, the subscription ends.
"""

from __future__ import annotations

from typing import Final

from hbroker.gateway.connections.connection import Connection, State
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import InFlight, SessionState, next_block
from hbroker.gateway.sessions.session_store import SessionStore
from hbroker.gateway.subscriptions.mqtt_subscriptions import MqttSubscriptions
from hbroker.protocol.timers import SECOND, TimerQueue

__all__ = ["RESUBSCRIBE_TIMEOUT", "StaleSessions", "forgotten"]

RESUBSCRIBE_TIMEOUT: Final = 30 * SECOND
"""How long a client may take to subscribe again: as long as messages wait for a listener (docs/protocol.md
§9)."""


def forgotten(state: SessionState) -> SessionState:
    """The state of a session that its client has discarded.

    QoS 2 messages that the client has received are not sent again. New messages get packet ids of the next
    block.
    """
    had = (InFlight(0, m.publisher, m.sequence, m.qos, True) for m in state.in_flight if m.is_received)
    return SessionState(tuple(m for m in had if m.publisher), block=next_block(state.block))


class StaleSessions:
    """Connections whose clients may still subscribe again."""

    def __init__(
        self, context: GatewayContext, mqtt_subscriptions: MqttSubscriptions, session_store: SessionStore
    ) -> None:
        self._context = context
        self._mqtt_subscriptions = mqtt_subscriptions
        self._session_store = session_store
        self._timeouts: TimerQueue[Connection] = TimerQueue()

    def await_resubscribe(self, now: int, connection: Connection) -> None:
        """Starts the wait of a connection that has leftover subscriptions."""
        if connection.stale_subscriptions:
            self._timeouts.set(connection, now + RESUBSCRIBE_TIMEOUT)

    def handle_timeout(self, now: int) -> None:
        """Ends the subscriptions whose clients have not subscribed again."""
        for connection in self._timeouts.due(now):
            if connection.state is State.OPEN:
                self._end(now, connection)

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return self._timeouts.next()

    def _end(self, now: int, connection: Connection) -> None:
        stale, connection.stale_subscriptions = connection.stale_subscriptions, ()
        unclaimed = tuple(kept for kept in stale if not connection.has_own_subscription(kept.filter))
        if unclaimed:
            if connection.pool_client is None:
                connection.pool_client = self._context.network_clients.open(
                    now, connection.client_name, connection.expiry_s, clean_start=False, is_kept=True
                )
            self._mqtt_subscriptions.sweep(now, connection, unclaimed)
        self._session_store.save_changed(now, connection, None)
