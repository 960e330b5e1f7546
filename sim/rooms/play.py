"""Runs a plan: connects all clients, lets their events happen when they are due, and waits for what is in
flight.

One heap holds the next event of every client. An event that happens late is counted as late: a message has
the time at which it was due, and the report shows how late events were and how busy this process was. So a
limit of the simulator is never taken for a limit of the network.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from random import SystemRandom
from typing import Final

from hbroker.errors import HBrokerError
from hbroker.runtime.client.client_pool import ClientPool, client_pool

from .delivery_counters import DeliveryCounters
from .effort import Effort, Stopwatch
from .latency import Histogram
from .links import Links
from .model.device import Action, Event
from .plan import Client, Plan
from .player import Player, Troubles

__all__ = ["NotAllConnected", "Play", "PlayOptions", "PlayedCounts", "Progress", "Result"]

CONNECTING: Final = 128
"""Clients that connect at the same time."""
DRAIN_TIMEOUT_S: Final = 30.0
"""Seconds for what is in flight at the end: longer than owners wait before they publish a will (15 s)."""
QUIET_S: Final = 1.0
"""After so many seconds without a message, what is not promised and is not a will does not come any more."""
_BATCH: Final = 512
_LONGEST_S: Final = 0.05
_SHOW_S: Final = 0.25
_MICRO: Final = 1_000_000


class NotAllConnected(HBrokerError):
    """Some clients could not connect. The text names the first."""


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """The settings of a run.

    `root`: of the network; None: the default. `gateways`: to which MQTT clients connect. `duration_s`: in
    real seconds. `speed`: simulated seconds in a real one.
    """

    root: str | None
    gateways: tuple[tuple[str, int], ...]
    duration_s: float
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run. Rates are averages since the last progress. `latency`: of the messages since
    then."""

    phase: str
    elapsed_s: float
    played_s: float
    duration_s: float
    devices: int
    connected: int
    asked: int
    published: int
    received: int
    outstanding: int
    published_per_s: float
    received_per_s: float
    late: Histogram
    latency: Histogram
    busy: float


@dataclass(frozen=True, slots=True)
class PlayedCounts:
    """Messages that were due, and that were handed over, while the devices played, without those at
    connecting."""

    asked: int
    published: int


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    `due_s`: the seconds in which all messages were due. `effort`: over the seconds until all were handed
    over. `owners`: for each stream, the name of the node that owned its topic at the beginning. `connected`:
    devices that were connected at any time.
    """

    plan: Plan
    counters: DeliveryCounters
    troubles: Troubles
    owners: tuple[str, ...]
    connected: int
    played: PlayedCounts
    connect_s: float
    due_s: float
    effort: Effort
    lateness: Histogram
    was_interrupted: bool


class Play:
    """One run of a plan. `show` is called a few times a second."""

    def __init__(
        self, plan: Plan, play_options: PlayOptions, show: Callable[[Progress], None] = lambda _: None
    ) -> None:
        self._plan = plan
        self._play_options = play_options
        self._show = show
        self._run = SystemRandom().getrandbits(16)
        self._counters = DeliveryCounters(plan, self._run)
        self._troubles = Troubles()
        self._lateness = Histogram()
        self._players: list[Player] = []
        self._began = time.monotonic()
        self._stop = asyncio.Event()
        self._phase = "connecting"
        self._played_since = 0.0
        self._shown = (self._began, 0, 0, time.process_time())

    def stop(self) -> None:
        """Ends the run early, and in order."""
        self._stop.set()

    async def run(self) -> Result:
        """Runs the plan. Raises NotAllConnected, and the errors of `client_pool`."""
        async with client_pool(self._play_options.root) as pool:
            links = Links(pool, self._play_options.gateways)
            self._troubles = Troubles(links.refusals)
            self._players = [
                Player(client, self._run, links, self._counters, self._now, self._troubles)
                for client in self._plan.clients
            ]
            showing = asyncio.create_task(self._show_regularly())
            try:
                return await self._run_within(pool)
            finally:
                showing.cancel()
                self._show_progress()
                await _run_limited(
                    (player.disconnect(is_abrupt=False) for player in self._players), CONNECTING
                )

    async def _run_within(self, pool: ClientPool) -> Result:
        begun = time.monotonic()
        events = [client.events() for client in self._plan.clients]
        await self._connect(lambda client: not client.is_device, events)
        owners = await _owners(pool, self._plan)
        await self._connect(lambda client: client.is_device, events)
        connect_s = time.monotonic() - begun
        self._phase = "playing"
        asked, published = self._counters.asked, self._counters.published
        self._played_since = time.monotonic()
        watch = Stopwatch()
        await self._play(events)
        effort = watch.read()
        played = PlayedCounts(self._counters.asked - asked, self._counters.published - published)
        self._phase = "settling"
        await self._await_outstanding()
        return Result(
            self._plan, self._counters, self._troubles, owners,
            sum(player.was_connected and player.client.is_device for player in self._players),
            played, connect_s, min(effort.seconds, self._play_options.duration_s), effort,
            self._lateness, self._stop.is_set(),
        )  # fmt: skip

    # Phases

    async def _connect(
        self, is_included: Callable[[Client], bool], events: Sequence[Iterator[Event]]
    ) -> None:
        """Connects the wanted clients. Their first event is that they connect."""
        connects = []
        for player in self._players:
            if is_included(player.client):
                next(events[player.client.number], None)
                connects.append(self._connect_one(player))
        await _run_limited(connects, CONNECTING)
        failed = self._troubles.failed
        if failed:
            name, why = next(iter(failed.items()))
            raise NotAllConnected(f"{len(failed)} clients could not connect; {name}: {why}")

    async def _connect_one(self, player: Player) -> None:
        if not self._stop.is_set():
            await player.connect(self._now())

    async def _play(self, events: Sequence[Iterator[Event]]) -> None:
        """Returns when every event that was due has happened, and every message was handed over."""
        started = self._now()
        last = started + round(self._play_options.duration_s * _MICRO)
        scale = _MICRO / self._play_options.speed

        def next_event(number: int) -> tuple[int, int, Action] | None:
            event = next(events[number], None)
            if event is None:
                return None
            due = started + int(event[0] * scale)
            return (due, number, event[1]) if due < last else None

        heap = [first for number in range(len(events)) if (first := next_event(number)) is not None]
        heapify(heap)
        while heap and not self._stop.is_set():
            now = self._now()
            for _ in range(_BATCH):
                due, number, action = heap[0]
                if due > now:
                    break
                after = next_event(number)
                if after is None:
                    heappop(heap)
                else:
                    heapreplace(heap, after)
                self._lateness.add(self._now() - due)
                self._players[number].act(action, due)
                if not heap:
                    break
            pause = (heap[0][0] - self._now()) / _MICRO if heap else 0.0
            await asyncio.sleep(min(max(pause, 0.0), _LONGEST_S))
        await self._pause((last - self._now()) / _MICRO)
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while any(player.has_queued for player in self._players) and time.monotonic() < deadline:
            await self._pause(_LONGEST_S)

    async def _await_outstanding(self) -> None:
        """Waits for what is in flight, as long as messages arrive or a promised one is missing."""
        counters = self._counters
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        last_received_at, received = time.monotonic(), counters.received
        while (now := time.monotonic()) < deadline and counters.outstanding:
            await asyncio.sleep(_LONGEST_S)
            if counters.received != received:
                last_received_at, received = now, counters.received
            elif now - last_received_at > QUIET_S:
                if not counters.awaited and not counters.sums(self._plan.streams).broken:
                    return
                last_received_at = now

    async def _pause(self, seconds: float) -> None:
        """Waits for this time, or until the run is to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._stop.wait()

    # Progress

    async def _show_regularly(self) -> None:
        while True:
            self._show_progress()
            await asyncio.sleep(_SHOW_S)

    def _show_progress(self) -> None:
        now, cpu = time.monotonic(), time.process_time()
        published, received = self._counters.published, self._counters.received
        before, published_before, received_before, cpu_before = self._shown
        passed = max(now - before, 1e-9)
        self._shown = now, published, received, cpu
        self._show(
            Progress(
                self._phase,
                now - self._began,
                now - self._played_since if self._played_since else 0.0,
                self._play_options.duration_s,
                self._plan.devices,
                sum(player.is_connected and player.client.is_device for player in self._players),
                self._counters.asked,
                published,
                received,
                self._counters.outstanding,
                (published - published_before) / passed,
                (received - received_before) / passed,
                self._lateness,
                self._counters.take_recent(),
                (cpu - cpu_before) / passed,
            )
        )

    def _now(self) -> int:
        return int((time.monotonic() - self._began) * _MICRO)


async def _run_limited(steps: Iterable[Coroutine[None, None, None]], most: int) -> None:
    """Runs all coroutines, `most` at a time."""
    running: set[asyncio.Task[None]] = set()
    for step in steps:
        if len(running) >= most:
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        running.add(asyncio.create_task(step))
    if running:
        await asyncio.wait(running)


async def _owners(pool: ClientPool, plan: Plan) -> tuple[str, ...]:
    """The owner of each stream: the owner of the topic above it, which is a device's or an area's."""
    client = await pool.connect()
    parents = [stream.topic.rpartition("/")[0] for stream in plan.streams]
    topics = list(dict.fromkeys(parents))
    names: dict[str, str] = {}
    for first in range(0, len(topics), CONNECTING):
        batch = topics[first : first + CONNECTING]
        found = await asyncio.gather(*(client.resolve(topic) for topic in batch))
        names.update(zip(batch, (resolution.owner for resolution in found), strict=True))
    await client.close()
    return tuple(names[topic] for topic in parents)
