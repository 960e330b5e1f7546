"""One client of a run: connects, publishes what is due, answers commands, and disconnects.

Messages that are due while it is not connected, or while the network takes no more, wait here in order, up to
a bound. Each keeps the time at which it was due, so that no wait is hidden. A connection that breaks
unexpectedly is counted, and made again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from .delivery_counters import DeliveryCounters
from .links import FAILURES, Link, Links
from .model.device import Action, Connect, Disconnect, Publish
from .plan import Client, Stream
from .stamp import STAMP_BYTES, add_stamp

__all__ = ["Player", "Troubles"]

MOST_WAITING: Final = 1_000
"""The bound on a client's waiting messages."""
TRIES: Final = 6
_RETRY_S: Final = 0.01
_PAUSE_S: Final = 0.5
_ONLINE, _OFFLINE = b"online", b"offline"


class Troubles:
    """What failed. `refusals`: refused messages, by reason. `failed`: clients that could not connect, and
    why."""

    def __init__(self, refusals: Counter[str] | None = None) -> None:
        self.refusals = Counter[str]() if refusals is None else refusals
        self.lost_connections = 0
        self.retried_connections = 0
        self.failed: dict[str, str] = {}


class Player:
    """Plays one client. `clock`: microseconds since the run began."""

    def __init__(
        self,
        client: Client,
        run: int,
        links: Links,
        counters: DeliveryCounters,
        clock: Callable[[], int],
        troubles: Troubles,
    ) -> None:
        self.client = client
        self.is_connected = False
        self.was_connected = False
        self._run = run
        self._links = links
        self._counters = counters
        self._clock = clock
        self._troubles = troubles
        self._link: Link | None = None
        self._queue: deque[tuple[Stream, bytes, int]] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        """Connecting and disconnecting happen one after the other, in the order in which they were due."""
        self._tasks: set[asyncio.Task[None]] = set()

    # Change

    def act(self, action: Action, due_us: int) -> None:
        """Does the action that is due."""
        match action:
            case Publish(stream, body):
                self._publish_or_queue(self.client.streams[stream], body, due_us)
            case Connect():
                self._start(self.connect(due_us))
            case Disconnect(is_abrupt):
                self._start(self.disconnect(is_abrupt=is_abrupt))

    async def connect(self, due_us: int) -> None:
        """Connects, subscribes, publishes its birth, and then the waiting messages.

        Gives up after some attempts, and notes that in the troubles.
        """
        async with self._lock:
            if self._link is not None:
                return
            for attempt in range(1, TRIES + 1):
                try:
                    self._link = await self._open_link()
                    break
                except (*FAILURES, TimeoutError) as error:
                    if attempt == TRIES:
                        self._troubles.failed[self.client.name] = str(error) or type(error).__name__
                        return
                    self._troubles.retried_connections += 1
                    await asyncio.sleep(_PAUSE_S * attempt)
            self.is_connected = self.was_connected = True
            if self.client.birth is not None:
                birth = self.client.streams[self.client.birth]
                self._counters.count_due(birth)
                self._queue.appendleft((birth, _ONLINE, due_us))
            self._publish_waiting()

    async def disconnect(self, *, is_abrupt: bool) -> None:
        """Disconnects, or breaks off; then its will is due. Messages that wait are never published."""
        async with self._lock:
            link, self._link = self._link, None
            self.is_connected = False
            self._discard_waiting()
            if link is None:
                return
            if is_abrupt:
                self._count_will(is_promised=True)
                link.vanish()
            else:
                await link.close()

    async def wait_until_idle(self) -> None:
        """Waits until it has connected and disconnected as the events asked."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def has_queued(self) -> bool:
        """Whether messages are still to be handed over."""
        return bool(self._queue)

    # Out

    def _publish_or_queue(self, stream: Stream, body: bytes, due_us: int) -> None:
        self._counters.count_due(stream)
        if len(self._queue) >= MOST_WAITING:
            self._counters.count_unsent(stream)
            return
        if self._queue or not self._publish(stream, body, due_us):
            self._queue.append((stream, body, due_us))
            self._schedule_retry()

    def _publish(self, stream: Stream, body: bytes, due_us: int) -> bool:
        if self._link is None:
            return False
        stamp = self._counters.next_stamp(stream, due_us)
        payload = add_stamp(stamp, body)
        if not self._link.publish(
            stream, payload, partial(self._counters.count_result, stream, stamp.number)
        ):
            return False
        self._counters.count_published(stream, len(payload))
        return True

    def _publish_waiting(self) -> None:
        """Publishes as many waiting messages as the network takes."""
        self._retry = None
        while self._queue:
            if not self._publish(*self._queue[0]):
                self._schedule_retry()
                return
            self._queue.popleft()

    def _schedule_retry(self) -> None:
        if self._retry is None and self._link is not None:
            self._retry = asyncio.get_running_loop().call_later(_RETRY_S, self._publish_waiting)

    def _discard_waiting(self) -> None:
        for stream, _, _ in self._queue:
            self._counters.count_unsent(stream)
        self._queue.clear()

    # In

    async def _open_link(self) -> Link:
        client = self.client
        link = await self._links.open(client, self._run, self._will(), self._receive, self._handle_lost)
        try:
            if client.filters:
                await link.subscribe(client.filters, client.qos, no_local=client.no_local)
        except BaseException:
            link.vanish()
            raise
        return link

    def _will(self) -> tuple[Stream, bytes] | None:
        if self.client.will is None:
            return None
        stream = self.client.streams[self.client.will]
        return stream, add_stamp(self._counters.next_stamp(stream, 0), _OFFLINE)

    def _count_will(self, *, is_promised: bool) -> None:
        if self.client.will is not None:
            stream = self.client.streams[self.client.will]
            number = self._counters.next_stamp(stream, 0).number
            self._counters.count_due(stream)
            self._counters.count_published(stream, STAMP_BYTES + len(_OFFLINE))
            self._counters.count_result(stream, number, True if is_promised else None)

    def _receive(self, topic: str, payload: bytes) -> None:
        now = self._clock()
        if self._counters.receive(self.client.number, payload, now) is None:
            return
        answer = self.client.answers.get(topic)
        if answer is not None:
            self._publish_or_queue(self.client.streams[answer], payload[STAMP_BYTES:], now)

    def _handle_lost(self, text: str) -> None:
        """The network ended the connection."""
        if self._link is None:
            return
        self._link = None
        self.is_connected = False
        self._troubles.lost_connections += 1
        self._count_will(is_promised=False)
        self._start(self.connect(self._clock()))

    def _start(self, step: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
