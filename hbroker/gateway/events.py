"""Events for the log of a gateway: clients that connected, were refused, or disconnected.

Events hold names and addresses, and no secrets. There may be many refusals in a second. The first ones of
each second are reported, and the number of the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from hbroker.addresses import format_address
from hbroker.gateway.native_api import ConnectEvent
from hbroker.protocol.timers import SECOND

__all__ = ["Connected", "Disconnected", "EventQueue", "GatewayEvent", "Refused"]

MOST_REFUSALS: Final = 10
"""Refusals that are reported in one second."""
_MOST: Final = 10_000
"""Events of all kinds that wait until they are polled. Of more the oldest are discarded."""
_LONGEST_NAME: Final = 128


@dataclass(frozen=True, slots=True)
class Connected:
    """A client was accepted."""

    client: str
    address: str
    version: int
    username: str | None
    is_present: bool
    """Its session was present."""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """An open connection has ended, as in `ClosedEvent`. `reason`: of MQTT 5; None: there was none."""

    client: str
    address: str
    cause: str
    reason: int | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A CONNECT was refused. `reason`: of MQTT 5, in all versions.

    `more`: the number of refusals since the last such event that are not reported.
    """

    client: str
    address: str
    version: int
    reason: int
    text: str
    more: int


GatewayEvent: TypeAlias = Connected | Disconnected | Refused


class EventQueue:
    """Events that were not polled yet."""

    def __init__(self) -> None:
        self._waiting: deque[GatewayEvent] = deque(maxlen=_MOST)
        self._second = 0
        self._reported = 0
        self._more = 0
        self.others: Callable[[], int] = int
        """The number of CONNECTs that the native core refused by itself since the last call."""

    def connected(self, event: ConnectEvent, client: str, username: str | None, *, is_present: bool) -> None:
        """Adds a `Connected`."""
        self._waiting.append(
            Connected(_short(client), format_address(event.peer), event.version, username, is_present)
        )

    def disconnected(self, event: ConnectEvent, client: str, cause: str, reason: int | None) -> None:
        """Adds a `Disconnected`."""
        self._waiting.append(Disconnected(_short(client), format_address(event.peer), cause, reason))

    def refused(self, now: int, event: ConnectEvent, reason: int, text: str) -> None:
        """Adds a `Refused`, or counts it if this second already has `MOST_REFUSALS`."""
        if now // SECOND != self._second:
            self._second, self._reported = now // SECOND, 0
        if self._reported >= MOST_REFUSALS:
            self._more += 1
            return
        self._reported += 1
        more, self._more = self._more + self.others(), 0
        client = _short(event.client_id)
        self._waiting.append(Refused(client, format_address(event.peer), event.version, reason, text, more))

    def poll(self) -> GatewayEvent | None:
        """The next event; None: there is none."""
        return self._waiting.popleft() if self._waiting else None


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"
