"""The pool clients of a gateway: the shared one, and those of sessions that need their own.

A session needs its own pool client if owners must keep its messages or its will while no gateway serves it,
or must count it in a shared group. Its network session is derived from the client id and the join key. So any
gateway can resume it, and an owner lets a new gateway take it over from a dead one (docs/protocol.md §6.4).
The subscriptions of all other sessions are at the shared pool client, and cost the network nothing more.

Pool clients have one address. So they share what they know of the nodes: address tokens, and which node owns
what. If a thousand devices connect again, a few of their pool clients ask the root, and the others go to the
owner at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from hbroker._native import LinkDownEvent
from hbroker.gateway.native_api import NativeApi
from hbroker.protocol.client import ClientControl
from hbroker.protocol.core import Event
from hbroker.protocol.packets import Address
from hbroker.protocol.resolution.caches import ResolverCaches
from hbroker.protocol.results import Result
from hbroker.protocol.sessions.options import SessionOptions, session_id
from hbroker.protocol.timers import SECOND, TimerQueue, earliest

__all__ = ["SHARED", "NetworkClients", "network_session"]

SHARED: Final = 0
_LEAVE_TIMEOUT: Final = SECOND
"""How long a pool client that leaves repeats LEAVE."""
_REPEAT: Final = SECOND // 100
"""The first interval of these repetitions; it doubles each time. An owner may acknowledge a LEAVE before
it executes it. It sends nothing more by itself, and answers the next LEAVE with RESET (docs/protocol.md
§3.6)."""


def network_session(client_id: str, key: bytes) -> int:
    """The network session of an MQTT client. A client of the network with the same name has another one."""
    return session_id(f"mqtt/{client_id}", key)


@dataclass(slots=True)
class _LeavingClient:
    """A pool client that leaves. `links`: to owners that have not closed them. `until`: the latest end."""

    control: ClientControl
    ends_session: bool
    with_will: bool
    links: int
    until: int
    pause: int = _REPEAT


class NetworkClients:
    """All pool clients of one gateway. `ids`: of subscriptions and tickets, over all pool clients.

    `name`: of the gateway; the shared pool client sends it to the owners.
    """

    def __init__(
        self, native_api: NativeApi, random: Random, root: Address, key: bytes, name: str, ids: Iterator[int]
    ) -> None:
        self._native_api = native_api
        self._random = random
        self._root = root
        self._key = key
        self._ids = ids
        self._caches = ResolverCaches.shared()
        self._deadlines: TimerQueue[int] = TimerQueue()
        self._leaving: TimerQueue[int] = TimerQueue()
        self._leaving_clients: dict[int, _LeavingClient] = {}
        self._waiters: dict[int, list[Callable[[int], None]]] = {}
        self._by_session: dict[int, int] = {}
        self._session_of: dict[int, int] = {}
        self._client_of: dict[int, str] = {}
        self._results: deque[tuple[int, Result]] = deque()
        self._rescheduled: set[int] = set()
        """Pool clients whose deadlines may differ from those in `_deadlines`."""
        self._controls: dict[int, ClientControl] = {}
        self._add_control(SHARED, SessionOptions(name))

    # Change

    def open(self, now: int, client_id: str, expiry_s: int, *, clean_start: bool, is_kept: bool) -> int:
        """Opens a pool client for this client's session; returns its number.

        `is_kept`: owners may have that session. A pool client that this session still has is closed at once:
        call `when_closed` first to wait for its end.
        """
        session = network_session(client_id, self._key)
        before = self._by_session.get(session)
        if before is not None:
            self._close(now, before)
        number = self._native_api.open_pool_client(
            session, persistent=is_kept or expiry_s > 0, incarnation=self._random.getrandbits(64)
        )
        self._add_control(number, SessionOptions(client_id, session, expiry_s, clean_start))
        self._by_session[session] = number
        self._session_of[number] = session
        self._client_of[number] = client_id
        return number

    def leave(self, now: int, number: int, *, end_session: bool, with_will: bool = False) -> None:
        """Lets a pool client leave its owners.

        It is closed when every owner has closed its link, or after a time in which the owners must have
        received LEAVE. Until then its control handles no events: it would make again what the owners end.
        `with_will`: the owner of its will publishes the will.
        """
        control = self._controls.pop(number)
        control.leave(end_session=end_session, with_will=with_will)
        self._deadlines.cancel(number)
        until = now + (_LEAVE_TIMEOUT if control.links else 0)
        self._leaving_clients[number] = _LeavingClient(control, end_session, with_will, control.links, until)
        self._leaving.set(number, min(now + _REPEAT, until))

    def close_now(self, now: int, number: int) -> None:
        """Closes a pool client at once: another gateway has its session."""
        if number in self._session_of:
            self._close(now, number)

    def when_closed(self, client_id: str, callback: Callable[[int], None]) -> bool:
        """Calls `callback` when this client's pool client is closed. Returns False if there is none."""
        session = network_session(client_id, self._key)
        if session not in self._by_session:
            return False
        self._waiters.setdefault(session, []).append(callback)
        return True

    def has(self, number: int) -> bool:
        """Whether this pool client exists, and is not leaving."""
        return number in self._controls

    def client_of(self, number: int) -> str | None:
        """The client id whose session has this pool client; None: there is none."""
        return self._client_of.get(number)

    def control(self, number: int) -> ClientControl:
        """The control of a pool client. Call `reschedule` after each change."""
        return self._controls[number]

    def reschedule(self, number: int) -> None:
        """Notes that a control's deadline may have changed."""
        if number in self._controls:
            self._rescheduled.add(number)

    # In

    def handle_event(self, now: int, number: int, event: Event) -> None:
        """Handles an event of one pool client's core. Events of a closed one are ignored."""
        control = self._controls.get(number)
        if control is not None:
            control.handle_event(now, event)
            self.reschedule(number)
        elif number in self._leaving_clients and isinstance(event, LinkDownEvent):
            leaving = self._leaving_clients[number]
            leaving.links -= 1
            if leaving.links <= 0:
                self._close(now, number)

    def handle_timeout(self, now: int) -> None:
        """Does everything that is due at `now`."""
        self._update_deadlines()
        for number in self._deadlines.due(now):
            self._controls[number].handle_timeout(now)
            self.reschedule(number)
        for number in self._leaving.due(now):
            self._go_on_leaving(now, number)

    # Out

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        self._update_deadlines()
        return earliest(self._deadlines.next(), self._leaving.next())

    def poll_result(self) -> tuple[int, Result] | None:
        """The number of a pool client and its next result; None: there is none now."""
        while self._results:
            number, result = self._results.popleft()
            if number in self._controls:
                return number, result
        return None

    def __len__(self) -> int:
        return len(self._controls)

    def _add_control(self, number: int, session_options: SessionOptions) -> None:
        self._controls[number] = ClientControl(
            self._native_api.member(number),
            self._random,
            self._root,
            session_options,
            self._ids,
            self._caches,
            lambda result: self._results.append((number, result)),
        )

    def _update_deadlines(self) -> None:
        """Reads the deadlines of the controls that were called, once in an iteration."""
        while self._rescheduled:
            number = self._rescheduled.pop()
            control = self._controls.get(number)
            self._deadlines.set(number, None if control is None else control.poll_timeout())

    def _go_on_leaving(self, now: int, number: int) -> None:
        leaving = self._leaving_clients[number]
        if now >= leaving.until:
            self._close(now, number)
            return
        leaving.control.leave(end_session=leaving.ends_session, with_will=leaving.with_will)
        leaving.pause *= 2
        self._leaving.set(number, min(now + leaving.pause, leaving.until))

    def _close(self, now: int, number: int) -> None:
        self._native_api.close_pool_client(number)
        self._controls.pop(number, None)
        del self._client_of[number]
        session = self._session_of.pop(number)
        if self._by_session.get(session) == number:
            del self._by_session[session]
        self._deadlines.cancel(number)
        self._leaving.cancel(number)
        self._leaving_clients.pop(number, None)
        for callback in self._waiters.pop(session, ()):
            callback(now)
