"""The members of a hive as clients see them, and the turns of all of them: `Seats`, of `Seat`.

A seat is to a member's hub the client's endpoint, and to its client what takes its turns, as `Driver` is
for a client with a socket of its own. One turn of the seats takes the events and messages of all members, and
visits those that have some, are due, or asked for it. What the hive gives out waits at its seat until the hub
has room for it; until then its owner holds it, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from hbroker._native import Hive, Message
from hbroker._native import Member as NativeMember
from hbroker.protocol.client import ClientControl
from hbroker.protocol.packets import Address
from hbroker.protocol.timer_queue import Agenda
from hbroker.runtime.turns import clock

__all__ = ["Seat", "Seats"]

BATCH: Final = 512
"""Events, and messages, taken in one turn."""
_SHORTEST_S: Final = 0.001

logger = logging.getLogger(__name__)


class Seats:
    """All members of one hive, in one event loop."""

    def __init__(self, hive: Hive, loop: asyncio.AbstractEventLoop) -> None:
        self.hive = hive
        self._loop: asyncio.AbstractEventLoop | None = loop
        self._seats: dict[int, Seat] = {}
        self._awake: dict[int, Seat] = {}
        """Those that the next turn visits."""
        self._deadlines: Agenda[int] = Agenda()
        self._handled: list[tuple[int, tuple[int, int]]] = []
        self._next: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(hive.fileno(), self._turn)

    # Change

    def take(self, number: int, *, acknowledges: bool) -> Seat:
        """The seat of a new member. `acknowledges`: what its hub reads is answered for."""
        seat = Seat(self, number, self.hive.member(number), acknowledges=acknowledges)
        self._seats[number] = seat
        return seat

    def leave(self, seat: Seat) -> None:
        """Its member ended: nothing of it is heard any more. Idempotent."""
        if self._seats.pop(seat.number, None) is not None and self._loop is not None:
            self._awake.pop(seat.number, None)
            self._deadlines.cancel(seat.number)
            self.hive.close_member(seat.number)

    def wake(self, seat: Seat) -> None:
        """It is visited in the next turn."""
        if self._loop is not None:
            self._awake[seat.number] = seat
            if self._next is None:
                self._next = self._loop.call_soon(self._turn)

    def acknowledge(self, number: int, messages: list[Message]) -> None:
        """§7.3: a member has these; their owners hear so at the end of the turn."""
        self._handled += [(number, m.copy_id) for m in messages if m.qos]

    def stop(self) -> None:
        """No more turns, and the hive ends. Idempotent."""
        if self._loop is None:
            return
        self._loop.remove_reader(self.hive.fileno())
        for handle in (self._next, self._timer):
            if handle is not None:
                handle.cancel()
        self._seats.clear()
        self._loop = None
        self.hive.shutdown()

    # Turns

    def _turn(self) -> None:
        """Takes what has come, and visits those whom it concerns."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._loop is None:
            return
        now = clock()
        visited, self._awake = self._awake, {}
        events = self.hive.poll_member_events(BATCH)
        for number, event in events:
            if (seat := self._seats.get(number)) is not None:
                visited[number] = seat
                seat.guard(seat.control.handle_event, now, event)
        messages = self.hive.poll_member_messages(BATCH)
        for number, message in messages:
            if (seat := self._seats.get(number)) is not None:
                visited[number] = seat
                seat.unread.append(message)
        for number in self._deadlines.due(now):
            seat = self._seats[number]
            visited[number] = seat
            seat.guard(seat.control.handle_timeout, now)
        if self.hive.fault is not None:
            visited = dict(self._seats)
        for seat in visited.values():
            self._visit(now, seat)
        if self._handled:
            self.hive.handled(self._handled)
            self._handled = []
        self._plan(now, at_once=bool(self._awake) or BATCH in (len(events), len(messages)))

    def _visit(self, now: int, seat: Seat) -> None:
        if seat.number not in self._seats:
            return
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
        if self._loop is None:
            return
        if at_once and self._next is None:
            self._next = self._loop.call_soon(self._turn)
        if self._timer is not None:
            self._timer.cancel()
        due = self._deadlines.next()
        self._timer = None
        if due is not None:
            self._timer = self._loop.call_later(max(_SHORTEST_S, (due - now) / 1e6), self._turn)


class Seat:
    """One member. Verbs of an endpoint that are not here are the native member's own."""

    control: ClientControl

    def __init__(self, seats: Seats, number: int, native: NativeMember, *, acknowledges: bool) -> None:
        self._seats = seats
        self._native = native
        self._acknowledges = acknowledges
        self.number = number
        self.unread: deque[Message] = deque()
        self.on_turn: Callable[[int], bool] = lambda now: False
        self.on_error: Callable[[Exception], None] = lambda error: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def run(
        self,
        endpoint: object,
        control: ClientControl,
        *,
        on_turn: Callable[[int], bool],
        on_error: Callable[[Exception], None],
    ) -> Seat:
        """Itself as the runner of this control, in the form in which a `Driver` is made."""
        self.control, self.on_turn, self.on_error = control, on_turn, on_error
        return self

    # As an endpoint

    @property
    def fault(self) -> str | None:
        """As `Endpoint.fault`."""
        return self._seats.hive.fault

    @property
    def address(self) -> Address:
        """Where the socket of all members is."""
        return self._seats.hive.address

    def poll_messages(self, limit: int = 1024) -> list[Message]:
        """As `Endpoint.poll_messages`."""
        messages = [self.unread.popleft() for _ in range(min(limit, len(self.unread)))]
        if self._acknowledges and messages:
            self._seats.acknowledge(self.number, messages)
        return messages

    def shutdown(self) -> None:
        """The member ends; the socket stays."""
        self._seats.leave(self)

    # As a runner

    def start(self) -> None:
        """Its turns begin."""
        self.wake()

    def wake(self) -> None:
        """It is visited in the next turn."""
        self._seats.wake(self)

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
