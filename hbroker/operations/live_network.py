"""What the nodes of a network say of themselves, live: for the HTTP API and `hbroker top`.

One client of the network is subscribed to the statuses of all nodes, to the
events of nodes and gateways (`$SYS/audit`), and to alerts. Requests are answered from what it knows, so a
thousand of them cost the nodes nothing.

A node publishes its status every ten seconds while somebody is subscribed. A node that has not for
`SILENT_S` is silent. One that has not for `FORGOTTEN_S` is forgotten: it has left, or has been renamed.
"""

# ruff: noqa: ASYNC109 (the reader ends the wait, and goes on)

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

from hbroker._native import Message
from hbroker.errors import HBrokerError
from hbroker.metrics.hot_topics import HotTopics
from hbroker.operations.node_statuses import (
    SESSIONS_FILTER,
    STATUS_FILTER,
    TOPICS_FILTER,
    Status,
    parse_status,
)
from hbroker.runtime.client.async_client import Client, Connecting

__all__ = [
    "FORGOTTEN_S",
    "SILENT_S",
    "Event",
    "EventReader",
    "KnownNode",
    "LiveNetwork",
    "Totals",
    "lag_s",
    "now_text",
    "number_of",
]

logger = logging.getLogger(__name__)

SILENT_S: Final = 30.0
FORGOTTEN_S: Final = 600.0
MOST_NODES: Final = 100_000
MOST_ALERTS: Final = 10_000
MOST_EVENTS: Final = 1_000
"""Events that are kept for those who ask later."""
MOST_WAITING: Final = 1_000
"""Events that wait for one reader. If he is slower, he misses the oldest, and is told how many."""
SAMPLE_S: Final = 10.0
MOST_SAMPLES: Final = 60
"""How often the sums of the network are kept, and how many of them: ten minutes."""
_RATE_US: Final = 5_000_000
"""Rates are those of at least so many microseconds. A node also publishes its status when somebody asks for
it, which may be at any moment."""
_AUDIT_FILTER: Final = "$SYS/audit/#"
_ALERTS_FILTER: Final = "$SYS/analysis/alerts/#"
_RETRY_S: Final = (1.0, 30.0)


@dataclass(slots=True)
class KnownNode:
    """The last status of a node. `seen`: when it came, by a monotonic clock, in seconds. `rates`: what each
    of its counters grew by in a second. `base`: the status from which they will be counted next."""

    status: Status
    seen: float
    rates: dict[str, float] = field(default_factory=dict)
    base: Status = field(default_factory=dict)

    def is_silent(self, now: float) -> bool:
        """Whether it has not published its status for a while."""
        return now - self.seen > SILENT_S


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all nodes. `counts`: of what they have now, by name. `rates`: as of `KnownNode`. `at`: when,
    by a monotonic clock, in seconds."""

    at: float
    counts: dict[str, int]
    rates: dict[str, float]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `number`: counts the events of this run of the API, from 1. `kind`: `audit`,
    `alert`, `move`, `plan`, `node` (a node has published its status, or is silent) or `missed` (the reader
    was too slow)."""

    number: int
    kind: str
    content: dict[str, Any]


class LiveNetwork:
    """All that is known. `connect()`: a client of the network. `run` has to run for as long as the API
    does."""

    def __init__(self, connect: Callable[[], Connecting]) -> None:
        self._connect = connect
        self._nodes: dict[str, KnownNode] = {}
        self._sessions: dict[str, list[dict[str, Any]]] = {}
        self._topics: dict[str, HotTopics] = {}
        self._alerts: dict[str, dict[str, Any]] = {}
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._samples: deque[Totals] = deque(maxlen=MOST_SAMPLES)
        self._sampled: float | None = None
        self._readers: set[EventReader] = set()
        self._number = 0
        self._first = asyncio.Event()
        self.client: Client | None = None
        """The client; None: the network cannot be reached now."""

    # Change

    async def run(self) -> None:
        """Keeps it up to date. When the network cannot be reached, it tries again and again."""
        pause, longest = _RETRY_S
        while True:
            try:
                async with self._connect() as client:
                    self.client, pause = client, _RETRY_S[0]
                    await self._follow(client)
            except (HBrokerError, OSError) as error:
                logger.warning("the network cannot be reached: %s", error)
            finally:
                self.client = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    # Read

    @property
    def is_known(self) -> bool:
        """Whether at least one node has said something since the API began."""
        return self._first.is_set()

    def nodes(self) -> dict[str, KnownNode]:
        """All nodes by name. Forgets those that have not said anything for long."""
        now = time.monotonic()
        for name in [name for name, known in self._nodes.items() if now - known.seen > FORGOTTEN_S]:
            del self._nodes[name]
            self._sessions.pop(name, None)
            self._topics.pop(name, None)
        return self._nodes

    def totals(self) -> Totals:
        """The sums now."""
        nodes = self.nodes().values()
        counts = {name: sum(number_of(each.status, name) for each in nodes) for name in _GAUGES}
        rates = {name: sum(each.rates.get(name, 0.0) for each in nodes) for name in _COUNTERS}
        return Totals(time.monotonic(), counts, rates)

    def history(self) -> list[Totals]:
        """The sums of the last ten minutes, the oldest first."""
        return list(self._samples)

    def sessions(self) -> Iterable[tuple[str, dict[str, Any]]]:
        """The sessions of all nodes, each with the name of the node. A node lists the 1,000 that have the
        most messages queued."""
        return ((node, session) for node in self.nodes() for session in self._sessions.get(node, ()))

    def hot_topics(self) -> dict[str, HotTopics]:
        """The topics with the most messages of each node that knows them."""
        return {name: self._topics[name] for name in self.nodes() if name in self._topics}

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that stand now (docs/analysis.md, Alerts)."""
        return list(self._alerts.values())

    def recent_events(self) -> list[Event]:
        """The last events, the oldest first."""
        return list(self._events)

    @contextmanager
    def reader(self, after: int | None = None) -> Iterator[EventReader]:
        """Reads the events from now on; or those with a higher number than `after`, as far as they are
        kept."""
        reader = EventReader()
        self._readers.add(reader)
        try:
            if after is not None:
                for event in self._events:
                    if event.number > after:
                        reader.add(event)
            yield reader
        finally:
            self._readers.discard(reader)

    def wake_readers(self) -> None:
        """Has all readers return at once, with None if nothing waits for them."""
        for reader in self._readers:
            reader.wake()

    # Within

    async def _follow(self, client: Client) -> None:
        filters = (STATUS_FILTER, SESSIONS_FILTER, TOPICS_FILTER, _AUDIT_FILTER, _ALERTS_FILTER)
        async with client.subscribe(*filters, qos=1) as messages:
            async for message in messages:
                self._take(message, time.monotonic())

    def _take(self, message: Message, now: float) -> None:
        levels = message.topic.split("/")
        if levels[1] == "nodes":
            self._take_status(message, levels[-1], now)
            return
        content = _parsed(message.payload)
        if levels[1] == "audit" and content is not None:
            # The topic says of which node it is, whatever the record says.
            self.tell("audit", {**content, "node": levels[2], "event": levels[-1]})
        elif levels[1] == "analysis":
            self._take_alert(message.topic, content)

    def _take_status(self, message: Message, leaf: str, now: float) -> None:
        status = parse_status(message.topic, message.payload)
        if status is None:
            return
        name = str(status["name"])
        if leaf == "sessions":
            listed = status.get("sessions")
            entries = listed if isinstance(listed, list) else []
            self._sessions[name] = [each for each in entries if isinstance(each, dict)]
            return
        if leaf == "topics":
            self._topics[name] = HotTopics.parse(status)
            return
        if name not in self._nodes and len(self._nodes) >= MOST_NODES:
            return
        self._nodes[name] = _known(self._nodes.get(name), status, now)
        self._first.set()
        self._sample(now)
        self.tell("node", {"name": name})

    def _sample(self, now: float) -> None:
        if self._sampled is None:
            self._sampled = now  # The other nodes have to say something first.
        elif now - self._sampled >= SAMPLE_S:
            self._sampled = now
            self._samples.append(self.totals())

    def _take_alert(self, topic: str, content: dict[str, Any] | None) -> None:
        self._alerts.pop(topic, None)
        if content is None or content.get("state") != "raised":
            self.tell("alert", {**(content or {}), "time": now_text(), "topic": topic, "state": "cleared"})
        elif len(self._alerts) < MOST_ALERTS:
            self._alerts[topic] = {**content, "topic": topic}
            self.tell("alert", {**self._alerts[topic], "time": now_text()})

    def tell(self, kind: str, content: dict[str, Any]) -> None:
        self._number += 1
        event = Event(self._number, kind, content)
        if kind != "node":
            self._events.append(event)
        for reader in self._readers:
            reader.add(event)


class EventReader:
    """Events that wait for one reader. Made by `LiveNetwork.reader`."""

    def __init__(self) -> None:
        self._waiting: deque[Event] = deque()
        self._missed = 0
        self._has_some = asyncio.Event()

    def add(self, event: Event) -> None:
        """Adds an event. Discards and counts the oldest if too many wait."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._missed += 1
        self._waiting.append(event)
        self._has_some.set()

    def wake(self) -> None:
        """Has `next` return."""
        self._has_some.set()

    async def next(self, timeout: float) -> Event | None:
        """The next event; None: none has come within `timeout` seconds, or the reader was woken."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                if not self._waiting:
                    self._has_some.clear()
                    await self._has_some.wait()
        if not self._waiting:
            return None
        if self._missed:
            missed, self._missed = self._missed, 0
            return Event(self._waiting[0].number - 1, "missed", {"events": missed})
        return self._waiting.popleft()


_GAUGES: Final = ("sessions", "sessions_offline", "subscriptions", "queued_messages", "queued_bytes")
_COUNTERS: Final = ("messages_in", "messages_out", "bytes_in", "bytes_out", "cpu_s")


def _known(before: KnownNode | None, status: Status, now: float) -> KnownNode:
    if before is None:
        return KnownNode(status, now, base=status)
    rates = _rates(before.base, status)
    is_short = bool(rates) and status["at_us"] - before.base["at_us"] < _RATE_US
    if is_short:
        return KnownNode(status, now, before.rates or rates, before.base)
    return KnownNode(status, now, rates, status)


def _rates(before: Status, after: Status) -> dict[str, float]:
    """What the counters of a node grew by in a second. Empty: the node was started anew, or has no time."""
    with suppress(ArithmeticError, KeyError, TypeError, ValueError):
        seconds = (after["at_us"] - before["at_us"]) / 1e6
        grown = {name: (after[name] - before[name]) / seconds for name in _COUNTERS} if seconds > 0 else {}
        if all(0 <= each < inf for each in grown.values()):
            return grown
    return {}


def lag_s(known: KnownNode) -> float | None:
    """For how many seconds a node would deliver what waits for its connected subscribers, at the rate of now.
    None: something waits, and nothing is delivered; or the rate is not known yet."""
    waiting = number_of(known.status, "queued_bytes") - number_of(known.status, "offline_bytes")
    if waiting <= 0:
        return 0.0
    rate = known.rates.get("bytes_out", 0.0)
    return waiting / rate if rate > 0 else None


def now_text() -> str:
    """The time of now, as in the records of nodes (docs/audit.md)."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def number_of(status: Status, name: str) -> int:
    """A count of a status; 0 if the node does not say it, or says something else."""
    value = status.get(name)
    return value if isinstance(value, int) else 0


def _parsed(payload: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
