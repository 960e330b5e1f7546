"""$SYS/broker/...: a gateway's counters under mosquitto's names.

A gateway owns no subtree, and `$SYS/nodes/...` belongs to the nodes. So these topics are not in the network.
The gateway answers each listener of its own clients whose filter can match, as an owner does for retained
messages. Clients see the values of their own gateway. A filter `$SYS/#` also gets the nodes' topics, and
`$SYS/broker/#` the states of bridges, which the network retains.

Load averages are events a minute, over the last 1, 5 and 15 minutes. Each is an exponentially weighted moving
average of the counts of the intervals, as is the load of a Unix system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp
from typing import Final

from hbroker._native import topic_matches
from hbroker.gateway.access.acl_file import BRIDGE_STATE
from hbroker.gateway.native_api import NativeApi
from hbroker.protocol.timers import SECOND
from hbroker.topic_filters import covers, overlap

__all__ = ["INTERVAL", "PERIODS", "PREFIX", "LoadAverage", "SysTopics", "values_of"]

PERIODS: Final = {"1min": 60.0, "5min": 300.0, "15min": 900.0}
"""Seconds, by the last level of the topic."""

PREFIX: Final = "$SYS/broker/"
_ALL: Final = "$SYS/broker/#"
INTERVAL: Final = 10 * SECOND
"""In microseconds; mosquitto's sys_interval."""
_DO_NOT_SEND: Final = 2

_COUNTED: Final = {
    "messages/received": "packets_in",
    "messages/sent": "packets_out",
    "bytes/received": "bytes_in",
    "bytes/sent": "bytes_out",
    "publish/messages/received": "messages_in",
    "publish/messages/sent": "messages_out",
    "publish/messages/dropped": "dropped",
    "clients/total": "sessions",
    "clients/connected": "connections",
    "clients/active": "connections",
    "clients/disconnected": "sessions_offline",
    "clients/inactive": "sessions_offline",
    "clients/maximum": "connections_most",
    "clients/expired": "sessions_expired",
    "subscriptions/count": "subscriptions",
    "shared_subscriptions/count": "shared_subscriptions",
    "heap/current": "rss_bytes",
    "sockets/turned_away": "turned_away",
    "sockets/failed/unfinished": "unfinished_full",
    "sockets/failed/proxy": "proxy_failed",
    "sockets/failed/password": "refused_password",
    "sockets/failed/guesses/address": "refused_address",
    "sockets/failed/guesses/name": "refused_name",
    "sockets/failed/guesses/pair": "refused_pair",
    "sockets/failed/busy": "refused_busy",
    "sockets/failed/tls": "tls_failed",
    "sockets/failed/websocket": "websocket_failed",
}
"""Topics below `$SYS/broker/`, and the names of their counters."""

_LOADS: Final = {
    "load/messages/received": "packets_in",
    "load/messages/sent": "packets_out",
    "load/bytes/received": "bytes_in",
    "load/bytes/sent": "bytes_out",
    "load/publish/received": "messages_in",
    "load/publish/sent": "messages_out",
    "load/publish/dropped": "dropped",
    "load/connections": "connects",
    "load/sockets": "sockets",
}


class LoadAverage:
    """The three averages of one counter. The counter only rises."""

    def __init__(self) -> None:
        self._last = 0
        self.per_minute: dict[str, float] = dict.fromkeys(PERIODS, 0.0)

    def update(self, count: int, seconds: float) -> None:
        """Adds the counter's value, `seconds` after the last update."""
        if seconds <= 0:
            return
        rate = max(count - self._last, 0) * 60.0 / seconds
        self._last = count
        for name, period in PERIODS.items():
            weight = exp(-seconds / period)
            self.per_minute[name] = rate + weight * (self.per_minute[name] - rate)


def values_of(
    counters: Mapping[str, int], loads: Mapping[str, LoadAverage], version: str, uptime_s: int
) -> dict[str, bytes]:
    """All topics and their payloads."""
    values = {
        "version": f"hbroker {version}",
        "uptime": f"{uptime_s} seconds",
        **{topic: str(counters.get(name, 0)) for topic, name in _COUNTED.items()},
    }
    for topic in _LOADS:
        for period, rate in loads[topic].per_minute.items():
            values[f"{topic}/{period}"] = f"{rate:.2f}"
    return {PREFIX + topic: text.encode() for topic, text in values.items()}


class SysTopics:
    """The listeners of these topics. `counters`: all counters, by name."""

    def __init__(
        self, native_api: NativeApi, counters: Callable[[], Mapping[str, int]], version: str
    ) -> None:
        self._native_api = native_api
        self._counters = counters
        self._version = version
        self._listeners: dict[int, str] = {}
        self._unanswered: dict[tuple[int, int], list[int]] = {}
        """Listeners that get all topics with their SUBACK, by connection and packet id."""
        self._loads = {topic: LoadAverage() for topic in _LOADS}
        self._values: dict[str, bytes] = {}
        self._began: int | None = None
        self._due = 0

    def is_all_of(self, filter: str) -> bool:
        """Whether a filter matches only these topics."""
        return covers(_ALL, filter) and not overlap(BRIDGE_STATE, filter)

    def add(self, listener: int, filter: str, connection: int, packet_id: int | None, handling: int) -> None:
        """Adds a listener if its filter can match. It gets the present values with its SUBACK, if it wants
        them."""
        if not overlap(_ALL, filter):
            return
        self._listeners[listener] = filter
        if packet_id is not None and handling != _DO_NOT_SEND:
            self._unanswered.setdefault((connection, packet_id), []).append(listener)

    def remove(self, listener: int) -> None:
        """Removes a listener."""
        self._listeners.pop(listener, None)

    def answered(self, connection: int, packet_id: int) -> None:
        """Sends the present values to the listeners of a SUBACK that has left."""
        for listener in self._unanswered.pop((connection, packet_id), ()):
            self._deliver(listener, self._values, retained=True)

    def closed(self, connection: int) -> None:
        """Forgets the SUBACKs that a closed connection still waited for."""
        for key in [key for key in self._unanswered if key[0] == connection]:
            del self._unanswered[key]

    def handle_timeout(self, now: int) -> None:
        """Sends the values that have changed, once in each interval."""
        if now < self._due:
            return
        began = self._began = now if self._began is None else self._began
        counters = self._counters()
        for topic, name in _LOADS.items():
            self._loads[topic].update(counters.get(name, 0), INTERVAL / SECOND if now > began else 0)
        values = values_of(counters, self._loads, self._version, (now - began) // SECOND)
        changed = {topic: value for topic, value in values.items() if self._values.get(topic) != value}
        self._values = values
        self._due = now + INTERVAL
        for listener in list(self._listeners):
            self._deliver(listener, changed, retained=False)

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due."""
        return self._due

    def _deliver(self, listener: int, values: Mapping[str, bytes], *, retained: bool) -> None:
        filter = self._listeners.get(listener)
        if filter is None:
            return
        for topic, value in values.items():
            if topic_matches(filter, topic):
                self._native_api.deliver(listener, topic, value, retained=retained)
