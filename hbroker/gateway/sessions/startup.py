"""The start of a gateway: it gets the records of the existing sessions before it takes clients.

Records are retained messages, and an owner sends them in the order of their topics (docs/protocol.md §7.6).
So the gateway first publishes a retained message of its own, whose topic comes after those of all records:
the *end mark*. Then it subscribes. When the owner sends the end mark, it has sent all records. A record may
still come after the mark, because its datagram was lost and sent again. So the gateway waits a little longer.

An owner that has no room for retained messages sends no end mark. Then the gateway waits until no record has
come for a long time.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from hbroker.gateway.context import GatewayContext
from hbroker.gateway.native_api import WillMessage
from hbroker.gateway.network_clients import SHARED
from hbroker.gateway.outbox import Done, OutboxMessage
from hbroker.gateway.records.record_authentication import (
    CLAIMS,
    GATEWAYS,
    REQUESTS,
    SESSIONS,
    client_hash,
    sign,
)
from hbroker.protocol.results import Result, Subscribed, SubscriptionFailed
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.protocol.timers import SECOND

__all__ = ["OWNER_TIMEOUT", "Startup", "end_mark_topic"]

OWNER_TIMEOUT: Final = 10 * SECOND
"""How long a gateway waits for an owner's answer to its own requests. Then it asks again."""
_FILTERS: Final = (CLAIMS + "#", SESSIONS + "#", GATEWAYS + "#", REQUESTS + "#")
_PAUSE_AFTER_MARK: Final = SECOND // 4
"""The records count as complete when the end mark has come, and no record for this time."""
_PAUSE_WITHOUT_MARK: Final = 10 * SECOND
"""They also count as complete when no record has come for this time."""


def end_mark_topic(gateway: str) -> str:
    """The topic of the end mark of the gateway with this name. It sorts after the topics of all records,
    whose last levels are in hex."""
    return f"{SESSIONS}~{client_hash(gateway)}"


class _State(Enum):
    MARKING = auto()
    SUBSCRIBING = auto()
    LOADING = auto()
    READY = auto()


class Startup:
    """The start of a gateway, from its end mark until it may take clients."""

    def __init__(self, context: GatewayContext) -> None:
        self._context = context
        self._topic = end_mark_topic(context.settings.name)
        body = {"gateway": context.settings.name, "run": context.clock.run}
        self._mark = sign(context.key, self._topic, body)
        self._state = _State.MARKING
        self._has_mark = False
        self._pending: set[int] = set()
        self._due: int | None = None

    def start(self, now: int) -> None:
        """Publishes the end mark. The subscriptions follow when an owner has it."""

        def marked(now: int, is_distributed: bool) -> None:
            if self._state is _State.MARKING:
                self._state = _State.SUBSCRIBING
                for filter in _FILTERS:
                    self._listen(now, filter)

        self._publish(now, self._mark, marked)

    def handle_result(self, now: int, result: Result) -> bool:
        """Handles the result of a subscription. Returns False if it is not one of those made here."""
        match result:
            case Subscribed(subscription=listener) if listener in self._pending:
                self._pending.discard(listener)
                if not self._pending and self._state is _State.SUBSCRIBING:
                    self._state = _State.LOADING
                    self._wait(now)
                return True
            case SubscriptionFailed(subscription=listener, filter=filter) if filter in _FILTERS:
                self._pending.discard(listener)
                self._listen(now, filter)
                return True
        return False

    def handle_retained(self, now: int, topic: str, payload: bytes) -> None:
        """Handles a retained message that the owner of the records had when the gateway subscribed."""
        if topic == self._topic and payload == self._mark:
            self._has_mark = True
        if self._state is _State.LOADING:
            self._wait(now)

    def handle_timeout(self, now: int) -> bool:
        """Returns whether clients may connect from now on."""
        if self._due is None or now < self._due:
            return False
        self._due = None
        self._state = _State.READY
        if not self._has_mark:
            self._context.events.started_without_mark(_PAUSE_WITHOUT_MARK // SECOND)
        self._publish(now, b"", None)
        return True

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return self._due

    @property
    def is_over(self) -> bool:
        """Whether clients may connect."""
        return self._state is _State.READY

    def _wait(self, now: int) -> None:
        self._due = now + (_PAUSE_AFTER_MARK if self._has_mark else _PAUSE_WITHOUT_MARK)

    def _publish(self, now: int, payload: bytes, done: Done | None) -> None:
        """Publishes to the mark's topic. It waits for no subscriber: another gateway may have died."""
        message = WillMessage(self._topic, payload, qos=1, retain=True)
        self._context.outbox.enqueue(now, OutboxMessage(message, done, replaces=True, ack_queued=True))

    def _listen(self, now: int, filter: str) -> None:
        network_clients = self._context.network_clients
        control = network_clients.control(SHARED)
        self._pending.add(control.subscribe(now, filter, Options(qos=1), timeout=OWNER_TIMEOUT))
        network_clients.reschedule(SHARED)
