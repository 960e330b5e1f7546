"""The start of a gateway: it subscribes to the topics of the gateways before it takes clients.

Presences and records are retained messages, and nothing marks the last one. The existing sessions count as
known when no record has arrived for a while.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from hbroker.gateway.network_clients import SHARED, NetworkClients
from hbroker.gateway.records.record_authentication import CLAIMS, GATEWAYS, REQUESTS, SESSIONS
from hbroker.protocol.results import Result, Subscribed, SubscriptionFailed
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.protocol.timers import SECOND

__all__ = ["OWNER_TIMEOUT", "Startup"]

OWNER_TIMEOUT: Final = 10 * SECOND
"""How long a gateway waits for an owner's answer to its own requests. Then it asks again."""
_FILTERS: Final = (CLAIMS + "#", SESSIONS + "#", GATEWAYS + "#", REQUESTS + "#")
_QUIET: Final = SECOND // 4
_LONGEST_LOADING: Final = 10 * SECOND


class _State(Enum):
    SUBSCRIBING = auto()
    LOADING = auto()
    READY = auto()


class Startup:
    """The start of a gateway, from its first subscription until it may take clients."""

    def __init__(self, network_clients: NetworkClients) -> None:
        self._network_clients = network_clients
        self._state = _State.SUBSCRIBING
        self._pending: set[int] = set()
        self._due: int | None = None
        self._loading_until = 0

    def start(self, now: int) -> None:
        """Makes the subscriptions."""
        for filter in _FILTERS:
            self._listen(now, filter)

    def handle_result(self, now: int, result: Result) -> bool:
        """Handles the result of one of them. Returns False if it is the result of another subscription."""
        match result:
            case Subscribed(subscription=listener) if listener in self._pending:
                self._pending.discard(listener)
                if not self._pending and self._state is _State.SUBSCRIBING:
                    self._state = _State.LOADING
                    self._loading_until = now + _LONGEST_LOADING
                    self._due = now + _QUIET
                return True
            case SubscriptionFailed(subscription=listener, filter=filter) if filter in _FILTERS:
                self._pending.discard(listener)
                self._listen(now, filter)
                return True
        return False

    def handle_record(self, now: int) -> None:
        """A record has arrived: others may follow."""
        if self._state is _State.LOADING:
            self._due = min(now + _QUIET, self._loading_until)

    def handle_timeout(self, now: int) -> bool:
        """Returns whether clients may connect from now on."""
        if self._due is None or now < self._due:
            return False
        self._due = None
        self._state = _State.READY
        return True

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return self._due

    @property
    def is_over(self) -> bool:
        """Whether clients may connect."""
        return self._state is _State.READY

    def _listen(self, now: int, filter: str) -> None:
        control = self._network_clients.control(SHARED)
        self._pending.add(control.subscribe(now, filter, Options(qos=1), timeout=OWNER_TIMEOUT))
        self._network_clients.reschedule(SHARED)
