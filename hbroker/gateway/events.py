"""Events for the log of a gateway: clients that connected, were refused, or disconnected.

Events hold names and addresses, and no secrets. There may be many refusals in a second. The first ones of
each second are reported, and the number of the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from hbroker.addresses import format_address
from hbroker.gateway.native_api import ConnectEvent
from hbroker.protocol.timers import SECOND

__all__ = ["WARNINGS", "EventQueue", "GatewayEvent"]

REFUSED: Final = "client_refused"
WITHOUT_MARK: Final = "started_without_mark"
WARNINGS: Final = frozenset({REFUSED, WITHOUT_MARK})
"""The events that are warnings."""
MOST_REFUSALS: Final = 10
"""Refusals that are reported in one second."""
_MOST: Final = 10_000
"""Events of all kinds that wait until they are polled. Of more the oldest are discarded."""
_LONGEST_NAME: Final = 128


class GatewayEvent(NamedTuple):
    """A line of the log: its name, and its fields."""

    name: str
    fields: dict[str, object]


class EventQueue:
    """Events that were not polled yet."""

    def __init__(self) -> None:
        self._queue: deque[GatewayEvent] = deque(maxlen=_MOST)
        self._second = 0
        self._reported = 0
        self._unreported = 0
        self.native_refusals: Callable[[], int] = int
        """The number of CONNECTs that the native core refused by itself since the last call."""

    def connected(self, event: ConnectEvent, client: str, username: str | None, *, is_present: bool) -> None:
        """A client was accepted. `is_present`: its session was present."""
        fields = {"version": event.version, "user": username, "session_present": is_present}
        self._add("client_connected", event, client, fields)

    def disconnected(self, event: ConnectEvent, client: str, cause: str, reason: int | None) -> None:
        """An open connection has ended, as in `ClosedEvent`. `reason`: of MQTT 5; None: there was none."""
        fields = {"cause": cause, "reason": None if reason is None else _hex(reason)}
        self._add("client_disconnected", event, client, fields)

    def refused(self, now: int, event: ConnectEvent, reason: int, text: str) -> None:
        """A CONNECT was refused. `reason`: of MQTT 5, in all versions.

        If this second already has `MOST_REFUSALS`, it is counted. The next event reports the number as
        `more`.
        """
        if now // SECOND != self._second:
            self._second, self._reported = now // SECOND, 0
        if self._reported >= MOST_REFUSALS:
            self._unreported += 1
            return
        self._reported += 1
        more, self._unreported = self._unreported + self.native_refusals(), 0
        fields = {"version": event.version, "reason": _hex(reason), "text": text, "more": more or None}
        self._add(REFUSED, event, event.client_id, fields)

    def started_without_mark(self, waited_s: int) -> None:
        """The gateway has begun to take clients although it may lack records of sessions."""
        remedy = "look whether the owner of $gateway has room for retained messages"
        self._queue.append(GatewayEvent(WITHOUT_MARK, {"waited_s": waited_s, "remedy": remedy}))

    def poll(self) -> GatewayEvent | None:
        """The next event; None: there is none."""
        return self._queue.popleft() if self._queue else None

    def _add(self, name: str, event: ConnectEvent, client: str, fields: Mapping[str, object]) -> None:
        short = client if len(client) <= _LONGEST_NAME else client[:_LONGEST_NAME] + "…"
        known = {"client": short, "address": format_address(event.peer), **fields}
        self._queue.append(
            GatewayEvent(name, {key: value for key, value in known.items() if value is not None})
        )


def _hex(reason: int) -> str:
    return f"0x{reason:02X}"
