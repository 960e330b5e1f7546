"""What owners still hold for a client that was told that it has no session.

An owner that was lost took its part of a session along. CONNACK says so (session present 0, MQTT 5
§3.2.2.1.1), and the client subscribes again. What the other owners hold for it was acknowledged to its
publishers, so it is not thrown away: their subscriptions stay, the member is away, and what waits comes when
the client has subscribed to the same filter. What it has not subscribed to after a while ends.
"""

from __future__ import annotations

from typing import Final

from hbroker.gateway.connect.connection import Connection, State
from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import InFlight, SessionState, next_block
from hbroker.gateway.sessions.session_store import SessionStore
from hbroker.gateway.subscriptions.mqtt_subscriptions import MqttSubscriptions
from hbroker.protocol.timer_queue import TimerQueue
from hbroker.protocol.timers import SECOND

__all__ = ["PATIENCE", "StaleSessions", "forgotten"]

PATIENCE: Final = 30 * SECOND
"""How long a client may take to subscribe again: as long as messages wait for a listener (§9)."""


def forgotten(state: SessionState) -> SessionState:
    """What is left of a session's state once its client has discarded it: what the client had of QoS 2
    messages is not sent to it again, and no packet id is one of before."""
    had = (InFlight(0, m.publisher, m.sequence, m.qos, True) for m in state.in_flight if m.is_received)
    return SessionState(tuple(m for m in had if m.publisher), block=next_block(state.block))


class StaleSessions:
    """The clients that may subscribe again."""

    def __init__(
        self, context: GatewayContext, mqtt_subscriptions: MqttSubscriptions, session_store: SessionStore
    ) -> None:
        self._context = context
        self._mqtt_subscriptions = mqtt_subscriptions
        self._session_store = session_store
        self._waiting: TimerQueue[Connection] = TimerQueue()

    def keep(self, now: int, connection: Connection) -> None:
        """The connection has some."""
        if connection.leftover:
            self._waiting.set(connection, now + PATIENCE)

    def handle_timeout(self, now: int) -> None:
        """Ends what nobody has asked for."""
        for connection in self._waiting.due(now):
            if connection.state is State.OPEN:
                self._end(now, connection)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        return self._waiting.next()

    def _end(self, now: int, connection: Connection) -> None:
        left, connection.leftover = connection.leftover, ()
        unwanted = tuple(kept for kept in left if not connection.holds(kept.filter))
        if unwanted:
            if connection.member is None:
                connection.member = self._context.network_clients.open(
                    now, connection.client_id, connection.expiry_s, clean_start=False, is_kept=True
                )
            self._mqtt_subscriptions.sweep(now, connection, unwanted)
        self._session_store.changed(now, connection, None)
