"""Many clients of one network behind one socket, in one event loop: `Fleet`.

    async with fleet("127.0.0.1:7700") as devices:
        lamp = await devices.connect(client_id="lamp")
        await lamp.publish("home/kitchen/lamp/state", b"on", qos=1)

`hbroker.connect` gives each client a socket and a thread, which is right for a few. Thousands in one process
are the members of a native hive (docs/architecture.md, "Many clients behind one socket"): each is a client
of its own, with a session, links and credit, and to its owners the same as any other. What a `Member` can do
is what a `Client` can, and the same code does it; what differs is who takes its turns (`seats`).

A member costs some 25 KiB. A fleet and its members belong to the event loop in which it was opened.
"""
# ruff: noqa: ASYNC109 (a timeout of one's own turns into an error that says what was tried)

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, Unpack, cast

from hbroker._native import Config, Endpoint, Hive, NativeError
from hbroker.errors import NotConnected
from hbroker.properties import Properties
from hbroker.protocol.packets import Address
from hbroker.protocol.resolution.owner_cache import Knowledge
from hbroker.protocol.results import Outcome, Published
from hbroker.runtime.address import Place, listen_for, place_of, resolve
from hbroker.runtime.client.client import TIMEOUT, Client
from hbroker.runtime.client.hub import CLOSE_TIMEOUT, LEAVE_TIMEOUT
from hbroker.runtime.client.identity import Identity, MemberProfile, random_id
from hbroker.runtime.client.pool_members import Seat, Seats

__all__ = ["Fleet", "Member", "MemberProfile", "fleet"]

_IDLE_POLL_S: Final = (0.005, 0.05)


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
        self._open_seats: Seats | None = None
        self._members: set[Member] = set()
        self._knowledge = Knowledge.shared()
        """Members have one address: what one of them learns of the nodes, all know."""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._root = await loop.run_in_executor(None, resolve, *self._place)
        listen = listen_for(self._root)
        if self._listen is not None:
            listen = await loop.run_in_executor(None, resolve, *place_of(self._listen))
        self._open_seats = Seats(Hive(_config(), listen), loop)
        try:
            first = self._open(Identity.of())
            await first._start()
            await first.close()
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
        return await asyncio.to_thread(self._seats.hive.drain, limit)

    async def close(self, timeout: float | None = None, *, end_sessions: bool = False) -> None:
        """Closes every member, as `Client.close` does, and the socket. Idempotent."""
        if self._open_seats is None:
            return
        await self.drain(CLOSE_TIMEOUT if timeout is None else timeout)
        for member in list(self._members):
            member._hub.close(end_session=end_sessions)
        await asyncio.to_thread(self._seats.hive.drain, LEAVE_TIMEOUT)
        self._stop()

    # Read

    def __len__(self) -> int:
        """How many members it has."""
        return len(self._members)

    @property
    def address(self) -> Address:
        """Where the socket of all is."""
        return self._seats.hive.address

    def counters(self) -> dict[str, int]:
        """As `Client.counters`, summed over all members, those that are gone too."""
        return self._seats.hive.counters()

    # Within this module

    @property
    def _seats(self) -> Seats:
        if self._open_seats is None:
            raise NotConnected("the fleet is closed")
        return self._open_seats

    def _open(self, identity: Identity) -> Member:
        seats, terms = self._seats, identity.terms
        try:
            number = seats.hive.open_member(
                terms.session, persistent=terms.is_persistent, incarnation=random_id()
            )
        except NativeError as error:
            raise ValueError(f"client {terms.client!r}: {error}") from None
        seat = seats.take(number, acknowledges=not identity.holds)
        member = Member(self, seat, self._root, identity, self._timeout)
        self._members.add(member)
        return member

    def _stop(self) -> None:
        seats, self._open_seats = self._open_seats, None
        members = list(self._members)
        self._members.clear()
        if seats is not None:
            seats.stop()
        for member in members:
            member._hub.end()


class Member(Client):
    """One client of a fleet. Made by `Fleet.connect`. Like any other `Client`, and cheaper."""

    def __init__(self, fleet: Fleet, seat: Seat, root: Address, identity: Identity, timeout: float) -> None:
        self._fleet = fleet
        self._seat = seat
        super().__init__(root, identity, cast(Endpoint, seat), timeout, seat.run, fleet._knowledge)

    def publish_then(
        self,
        told: Callable[[int | None], None],
        topic: str,
        payload: bytes | str = b"",
        **properties: Unpack[Properties],
    ) -> int:
        """As `try_publish`, at QoS 1 or 2; `told` is called with the `Reason` once it is known what became of
        the message. None: with the client, before that. For those who wait for thousands of them."""

        def tell(outcome: Outcome | Exception) -> None:
            told(outcome.reason if isinstance(outcome, Published) else None)

        return self._hub.publish(topic, payload, properties, tell)

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


def _config() -> Config:
    return Config(
        node=False,
        session=random_id(),
        incarnation=random_id(),
        token_keys=[os.urandom(16)],
        seed=random_id(),
    )
