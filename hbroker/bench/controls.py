"""The controls of a load's clients of hbroker's own protocol, all in one event loop.

Each client is one of the native core, and its control (`hbroker.protocol.client`) is that of any client. The
control does not see messages and their results: the load in the core handles those. A client has a socket of
its own, or is a client of a pool. The clients of one pool have one address, and share what they know of the
nodes, as those of a gateway do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from random import SystemRandom
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Final, TypeAlias

from hbroker.bench.launching import NoAnswer
from hbroker.protocol.client import ClientControl
from hbroker.protocol.core import ClientCore, Event
from hbroker.protocol.resolution.caches import ResolverCaches
from hbroker.protocol.results import Resolved, Subscribed
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.protocol.timers import TimerQueue
from hbroker.runtime.client.identity import Identity, random_id
from hbroker.runtime.control_loop import EVENTS, clock

if TYPE_CHECKING:
    from hbroker._native import LoadClient, LoadClientPool
    from hbroker.bench.plan import Address
    from hbroker.protocol.results import Resolution

__all__ = ["Controls"]

_LOOK_S: Final = 0.05
"""Seconds between two checks of deadlines: those of requests and leases are far longer."""
_AT_ONCE: Final = 64
"""Clients that subscribe at the same time."""

_EventSource: TypeAlias = Callable[[], Iterable[tuple[ClientControl, Event]]]
"""The events of the clients of one socket, each with its control."""


class Controls:
    """Runs all controls, while one of its methods is called. `root`: of the network."""

    def __init__(self, root: Address, patience_s: float) -> None:
        self._root = root
        self._patience = round(patience_s * 1e6)
        self._selector = DefaultSelector()
        self._controls: list[ClientControl] = []
        self._sockets: list[LoadClient | LoadClientPool] = []
        self._members: dict[LoadClientPool, tuple[dict[int, ClientControl], ResolverCaches]] = {}
        self._waiting: set[ClientControl] = set()
        self._deadlines: TimerQueue[ClientControl] = TimerQueue()
        self._next_look = 0.0
        self._resolution: Resolution | None = None

    def add(self, member: LoadClient, identity: Identity) -> None:
        """Adds a client with a socket of its own."""
        control = self._take(member, identity, None)
        self._listen(member, lambda: ((control, event) for event in member.poll_events(EVENTS)))

    def add_client_pool(self, pool: LoadClientPool) -> None:
        """Adds a client pool."""
        members: dict[int, ClientControl] = {}
        self._members[pool] = members, ResolverCaches.shared()
        self._listen(pool, lambda: _told(pool, members))

    def join(self, pool: LoadClientPool, identity: Identity, subscriber: int) -> None:
        """Adds a client of a pool. It is this subscriber of the load."""
        members, caches = self._members[pool]
        session_options = identity.session_options
        number = pool.open_pool_client(
            session_options.session, persistent=session_options.is_persistent, incarnation=random_id()
        )
        pool.enter(number, subscriber)
        members[number] = self._take(pool.member(number), identity, caches)

    def subscribe(self, filter: str, qos: int) -> None:
        """Makes the latest client subscribe. `settle` returns when every owner has the subscription. Raises
        NoAnswer."""
        control = self._controls[-1]
        self._waiting.add(control)
        control.subscribe(clock(), filter, Options(qos), timeout=self._patience)
        self._hear(control)
        self.settle(_AT_ONCE - 1)

    def settle(self, left: int = 0) -> None:
        """Returns when at most `left` clients wait for the result of a request. Raises NoAnswer."""
        while len(self._waiting) > left:
            self._turn(_LOOK_S)

    def find(self, topic: str) -> Resolution:
        """Makes the latest client look up the owner of a topic. Raises NoAnswer."""
        self.settle()
        control = self._controls[-1]
        self._waiting.add(control)
        control.resolve(clock(), topic, timeout=self._patience)
        self._hear(control)
        self.settle()
        assert self._resolution is not None, "a look-up ends with one, or raises"
        return self._resolution

    def run(self, seconds: float) -> None:
        """Handles events for this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._turn(min(left, _LOOK_S))

    def close(self) -> None:
        """Makes every client leave its owners. Idempotent."""
        for control in self._controls:
            control.leave()
        for socket in self._sockets:
            self._selector.unregister(socket.fileno())
            socket.drain(0.2)
        self._controls, self._sockets, self._members = [], [], {}
        self._selector.close()

    def _take(self, core: ClientCore, identity: Identity, caches: ResolverCaches | None) -> ClientControl:
        control = ClientControl(core, SystemRandom(), self._root, identity.session_options, caches=caches)
        self._controls.append(control)
        return control

    def _listen(self, socket: LoadClient | LoadClientPool, source: _EventSource) -> None:
        self._sockets.append(socket)
        self._selector.register(socket.fileno(), EVENT_READ, source)

    def _turn(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            source: _EventSource = key.data
            for control, event in source():
                control.handle_event(clock(), event)
                self._hear(control)
        if (at := time.monotonic()) >= self._next_look:
            self._next_look = at + _LOOK_S
            now = clock()
            for control in self._deadlines.due(now):
                control.handle_timeout(now)
                self._hear(control)

    def _hear(self, control: ClientControl) -> None:
        while (result := control.poll_result()) is not None:
            if isinstance(result, Resolved):
                self._resolution = result.resolution
            if isinstance(result, Resolved | Subscribed):
                self._waiting.discard(control)
            else:
                raise NoAnswer(f"a client of the load cannot go on: {result}")
        self._deadlines.set(control, control.poll_timeout())


def _told(pool: LoadClientPool, members: dict[int, ClientControl]) -> Iterable[tuple[ClientControl, Event]]:
    """The events of a pool's clients. A pool begins with a client that is not one of the load: its events are
    left out."""
    for number, event in pool.poll_pool_events(EVENTS):
        if (control := members.get(number)) is not None:
            yield control, event
