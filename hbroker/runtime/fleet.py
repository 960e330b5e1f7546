"""Many clients of one network behind one socket, in one event loop: `Fleet`.

    async with fleet("127.0.0.1:7700") as devices:
        lamp = await devices.connect(client_id="lamp")
        await lamp.publish("home/kitchen/lamp/state", b"on", qos=1)

`hbroker.connect` gives each client a socket and a thread, which is right for a few. Thousands in one process
are the members of a native hive (docs/architecture.md, "Many clients behind one socket"): each is a client
of its own, with a session, links and credit, and to its owners the same as any other. What a `Member` can do
is what a `Client` can, and the same code does it; what differs is who takes its turns. Here one turn takes
the events and messages of all members, and visits only those that have some, or are due.

A member costs some 25 KiB. A fleet and its members belong to the event loop in which it was opened.
"""
# ruff: noqa: ASYNC109 (a timeout of one's own turns into an error that says what was tried)

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self, TypedDict, Unpack, cast

from hbroker._native import Config, Endpoint, Hive, Message, NativeError
from hbroker.errors import NotConnected
from hbroker.protocol.agenda import Agenda
from hbroker.protocol.client import ClientControl
from hbroker.protocol.outcome import Outcome, Published
from hbroker.protocol.packets import Address
from hbroker.runtime.address import Place, listen_for, place_of, resolve
from hbroker.runtime.client import TIMEOUT, Client
from hbroker.runtime.hub import CLOSE_TIMEOUT, LEAVE_TIMEOUT
from hbroker.runtime.identity import Identity, Will, random_id
from hbroker.runtime.publication import Properties, Publication
from hbroker.runtime.turns import clock

__all__ = ["Fleet", "Member", "MemberProfile", "fleet"]

BATCH: Final = 512
"""Events, and messages, taken in one turn."""
_IDLE_POLL_S: Final = (0.005, 0.05)
_SHORTEST_S: Final = 0.001

logger = logging.getLogger(__name__)


class MemberProfile(TypedDict, total=False):
    """What a member may be, in the arguments of `Fleet.connect`; as in `Profile`."""

    client_id: str | None
    session_expiry: float
    session_key: str | bytes
    clean_start: bool
    will: Will | None
    acknowledge: Literal["received", "handled"]


def fleet(root: Place = None, *, listen: Place = None, timeout: float = TIMEOUT) -> Fleet:
    """A fleet for the network with this root; to be used with `async with`.

    Arguments as in `hbroker.connect`. Entering it raises Unreachable where no root answers, OSError where
    the root has no address or the socket cannot be had, ValueError for what is no address.
    """
    return Fleet(place_of(root), listen, timeout)


class Fleet:
    """Many clients behind one socket. Made by `fleet`."""

    def __init__(self, root: tuple[str, int], listen: Place, timeout: float) -> None:
        self._place = root
        self._listen = listen
        self._timeout = timeout
        self._root: Address = root
        self._hive: Hive | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seats: dict[int, _Seat] = {}
        self._members: set[Member] = set()
        self._awake: dict[int, _Seat] = {}
        """Those that the next turn visits."""
        self._deadlines: Agenda[int] = Agenda()
        self._handled: list[tuple[int, tuple[int, int]]] = []
        self._next: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._root = await loop.run_in_executor(None, resolve, *self._place)
        listen = listen_for(self._root)
        if self._listen is not None:
            listen = await loop.run_in_executor(None, resolve, *place_of(self._listen))
        self._hive = Hive(_config(), listen)
        self._loop = loop
        loop.add_reader(self._hive.fileno(), self._turn)
        try:
            await self._require_root()
        except BaseException:
            self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Change

    async def connect(self, **profile: Unpack[MemberProfile]) -> Member:
        """A new client, once its will, if it has one, is kept by its owner. The root is not asked again.

        Raises Refused and Unreachable where nobody keeps the will, ValueError for what is wrong, or where a
        member has that session already, NotConnected once the fleet is closed.
        """
        member = self._open(Identity.of(**cast(Any, profile)))
        try:
            await member._begin()
        except BaseException:
            member.vanish()
            raise
        return member

    async def drain(self, timeout: float | None = None) -> bool:
        """As `Client.drain`, of all members."""
        limit = self._timeout if timeout is None else timeout
        return await asyncio.to_thread(self._core.drain, limit)

    async def close(self, timeout: float | None = None, *, end_sessions: bool = False) -> None:
        """Closes every member, as `Client.close` does, and the socket. Idempotent."""
        if self._hive is None:
            return
        await self.drain(CLOSE_TIMEOUT if timeout is None else timeout)
        for member in list(self._members):
            member._hub.close(end_session=end_sessions)
        await asyncio.to_thread(self._core.drain, LEAVE_TIMEOUT)
        self._stop()

    # Read

    def __len__(self) -> int:
        """How many members it has."""
        return len(self._members)

    @property
    def address(self) -> Address:
        """Where the socket of all is."""
        return self._core.address

    def counters(self) -> dict[str, int]:
        """As `Client.counters`, summed over all members, those that are gone too."""
        return self._core.counters()

    # Within this module

    @property
    def _core(self) -> Hive:
        if self._hive is None:
            raise NotConnected("the fleet is closed")
        return self._hive

    def _open(self, identity: Identity) -> Member:
        core = self._core
        terms = identity.terms
        try:
            number = core.open_member(terms.session, persistent=terms.is_persistent, incarnation=random_id())
        except NativeError as error:
            raise ValueError(f"client {terms.client!r}: {error}") from None
        seat = _Seat(self, number, acknowledges=not identity.holds)
        member = Member(self, seat, self._root, identity, self._timeout)
        self._seats[number] = seat
        self._members.add(member)
        return member

    async def _require_root(self) -> None:
        first = self._open(Identity.of())
        await first._start()
        await first.close()

    def _forget(self, number: int) -> None:
        """A member ended: nothing of it is heard any more."""
        if self._seats.pop(number, None) is not None and self._hive is not None:
            self._awake.pop(number, None)
            self._deadlines.cancel(number)
            self._hive.close_member(number)

    def _wake(self, seat: _Seat) -> None:
        self._awake[seat.number] = seat
        if self._next is None and self._loop is not None:
            self._next = self._loop.call_soon(self._turn)

    def _acknowledge(self, number: int, messages: list[Message]) -> None:
        """§7.3: these are in this process, at the end of the turn their owners hear so."""
        self._handled += [(number, (m.publisher, m.sequence)) for m in messages if m.qos]

    def _turn(self) -> None:
        """Takes what has come, and visits those whom it concerns."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._hive is None:
            return
        now = clock()
        visited, self._awake = self._awake, {}
        events = self._hive.poll_member_events(BATCH)
        for number, event in events:
            if (seat := self._seats.get(number)) is not None:
                visited[number] = seat
                seat.guard(seat.control.handle_event, now, event)
        messages = self._hive.poll_member_messages(BATCH)
        for number, message in messages:
            if (seat := self._seats.get(number)) is not None:
                visited[number] = seat
                seat.unread.append(message)
        for number in self._deadlines.due(now):
            seat = self._seats[number]
            visited[number] = seat
            seat.guard(seat.control.handle_timeout, now)
        if self._hive.fault is not None:
            visited = dict(self._seats)
        for seat in visited.values():
            self._visit(now, seat)
        if self._handled:
            self._hive.handled(self._handled)
            self._handled = []
        self._plan(now, at_once=bool(self._awake) or BATCH in (len(events), len(messages)))

    def _visit(self, now: int, seat: _Seat) -> None:
        if seat.guard(seat.on_turn, now):
            self._awake[seat.number] = seat
        if seat.number not in self._seats:
            return  # It ended.
        due = seat.control.poll_timeout()
        if due is None:
            self._deadlines.cancel(seat.number)
        else:
            self._deadlines.set(seat.number, due)

    def _plan(self, now: int, *, at_once: bool) -> None:
        loop = self._loop
        if loop is None:
            return
        if at_once and self._next is None:
            self._next = loop.call_soon(self._turn)
        if self._timer is not None:
            self._timer.cancel()
        due = self._deadlines.next()
        self._timer = None
        if due is not None:
            self._timer = loop.call_later(max(_SHORTEST_S, (due - now) / 1e6), self._turn)

    def _stop(self) -> None:
        hive, self._hive = self._hive, None
        if hive is None or self._loop is None:
            return
        self._loop.remove_reader(hive.fileno())
        for handle in (self._next, self._timer):
            if handle is not None:
                handle.cancel()
        self._seats.clear()
        self._members.clear()
        self._loop = None
        hive.shutdown()


class Member(Client):
    """One client of a fleet. Made by `Fleet.connect`. Like any other `Client`, and cheaper."""

    def __init__(self, fleet: Fleet, seat: _Seat, root: Address, identity: Identity, timeout: float) -> None:
        self._fleet = fleet
        self._seat = seat
        super().__init__(root, identity, cast(Endpoint, seat), timeout, partial(_seated, seat))

    def publish_then(
        self,
        told: Callable[[int | None], None],
        topic: str,
        payload: bytes | str = b"",
        **properties: Unpack[Properties],
    ) -> int:
        """As `try_publish`, at QoS 1 or 2; `told` is called with the `Reason` once it is known what became of
        the message. None: with the client, before that. For those who wait for thousands of them."""
        message = Publication(topic, payload, **properties)

        def tell(outcome: Outcome | Exception) -> None:
            told(outcome.reason if isinstance(outcome, Published) else None)

        return self._hub.publish(message, tell)

    async def drain(self, timeout: float | None = None) -> bool:
        """Waits until what was published is sent and, where asked for, acknowledged. False: time is over."""
        pause, longest = _IDLE_POLL_S
        try:
            async with asyncio.timeout(self._timeout if timeout is None else timeout):
                while self._is_busy():
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, longest)
        except TimeoutError:
            return False
        return True

    async def close(self, timeout: float | None = None, *, end_session: bool = False) -> None:
        """As `Client.close`; the fleet's socket stays open."""
        if self._hub.is_closed:
            return
        await self.drain(CLOSE_TIMEOUT if timeout is None else timeout)
        self._hub.close(end_session=end_session)
        self._stop()

    def vanish(self) -> None:
        """Ends without a word to the owners, as a device does that loses its power: they notice its silence,
        and publish its will. Whoever waits for something gets NotConnected. Idempotent."""
        if not self._hub.is_closed:
            self._hub.vanish()
            self._stop()

    async def _begin(self) -> None:
        self._driver.start()
        if self._will is not None:
            await self._register(self._will)

    def _is_busy(self) -> bool:
        counters = self._seat.counters()
        return self._hub.is_owed or any(counters[name] for name in ("inflight", "waiting", "queued_bytes"))

    def _stop(self) -> None:
        super()._stop()
        self._fleet._members.discard(self)


class _Seat:
    """A member as its hub and its control see it: an endpoint, and what takes its turns.

    Verbs that are not here are the native member's own.
    """

    control: ClientControl

    def __init__(self, fleet: Fleet, number: int, *, acknowledges: bool) -> None:
        self._fleet = fleet
        self._native = fleet._core.member(number)
        self._acknowledges = acknowledges
        self.number = number
        self.unread: deque[Message] = deque()
        """What the hive gave out, and the hub has no room for: its owners still hold it, and count it."""
        self.on_turn: Callable[[int], bool] = lambda now: False
        self.on_error: Callable[[Exception], None] = lambda error: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    # As an endpoint

    @property
    def fault(self) -> str | None:
        """As `Endpoint.fault`."""
        hive = self._fleet._hive
        return None if hive is None else hive.fault

    @property
    def address(self) -> Address:
        """Where the fleet's socket is."""
        return self._fleet.address

    def poll_messages(self, limit: int = 1024) -> list[Message]:
        """As `Endpoint.poll_messages`."""
        messages = [self.unread.popleft() for _ in range(min(limit, len(self.unread)))]
        if self._acknowledges and messages:
            self._fleet._acknowledge(self.number, messages)
        return messages

    def shutdown(self) -> None:
        """The member ends; the socket stays."""
        self._fleet._forget(self.number)

    # As a runner

    def start(self) -> None:
        """Its turns begin."""
        self.wake()

    def wake(self) -> None:
        """It is visited in the next turn."""
        self._fleet._wake(self)

    def watch(self, wanted: bool) -> None:
        """What it does not take stays in `unread`."""

    def stop(self) -> None:
        """No more turns: `shutdown` follows."""

    def guard(self, handler: Callable[..., Any], *args: Any) -> Any:
        """One member's trouble is not the others': a defect of this program is logged and told."""
        try:
            return handler(*args)
        except Exception as error:
            logger.exception("a handler of a member's control failed: a defect of this program")
            self.on_error(error)
            return None


def _seated(
    seat: _Seat,
    endpoint: object,
    control: ClientControl,
    *,
    on_turn: Callable[[int], bool],
    on_error: Callable[[Exception], None],
) -> _Seat:
    """The seat as the runner of this control, in the form of a `Driver`."""
    seat.control, seat.on_turn, seat.on_error = control, on_turn, on_error
    return seat


def _config() -> Config:
    return Config(
        node=False,
        session=random_id(),
        incarnation=random_id(),
        publisher=random_id(),
        token_keys=[os.urandom(16)],
        seed=random_id(),
    )
