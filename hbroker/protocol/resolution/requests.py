"""Requests outside of a session: PUBCONNECT and SUBSCRIBE on their way to an answer (§4.1, §5.2, §6.1).

A request has 64 random bits as its id. An answer counts only for a request that is open under its id, from
whatever address it comes: the owner that answers may be a node that the client never wrote to. Somebody who
cannot read the client's datagrams cannot guess the id.

A node that does not know the client's address answers CHALLENGE, which names no request: it concerns all
requests that were sent to its source with another token, or with none. Those are sent again at once, and
that is no new try. How often a challenge is obeyed in one try is bounded, so that two peers cannot keep
each other busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, Generic, TypeAlias, TypeVar

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import Core
from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.protocol.packets import REQUEST_PADDING, Address, address_from, pack
from hbroker.protocol.timer_queue import TimerQueue
from hbroker.protocol.timers import SECOND, retry_after

__all__ = ["TOKEN_LIFETIME", "Request", "Requests", "TokenCache", "keep_token", "reachable"]

OwnerT = TypeVar("OwnerT")

TokenCache: TypeAlias = ExpiringCache[Address, bytes]

TOKEN_LIFETIME: Final = 120 * SECOND
_LONGEST_TOKEN: Final = 64
_CHALLENGES_PER_TRY: Final = 3
_UNSPECIFIED: Final = frozenset({"0.0.0.0", "::"})


def keep_token(tokens: TokenCache, now: int, address: Address, token: bytes, lifetime: int) -> None:
    """Remembers a token that a node gave (§4.2); an empty or an oversized one is none."""
    if 0 < len(token) <= _LONGEST_TOKEN:
        tokens.put(address, token, now + min(lifetime, TOKEN_LIFETIME))


def reachable(advertised: pb.Address, instead: Address) -> Address:
    """The address that a node tells of itself; one that nobody can send to gives way to `instead`."""
    address = address_from(advertised)
    return instead if address is None or address[0] in _UNSPECIFIED else address


@dataclass(slots=True, eq=False)
class Request(Generic[OwnerT]):
    """One question to one node. `owner` is whoever waits for the answer."""

    id: int
    owner: OwnerT
    address: Address
    packet: bytes
    tries: int = 0
    sent_at: int = 0
    token: bytes = b""
    challenges: int = 0


class Requests(Generic[OwnerT]):
    """The open requests of one asker: sends, repeats, finds by id."""

    __slots__ = ("_at", "_core", "_open", "_random", "_timers", "_tokens")

    def __init__(self, core: Core, random: Random, tokens: TokenCache) -> None:
        self._core = core
        self._random = random
        self._tokens = tokens
        self._open: dict[int, Request[OwnerT]] = {}
        self._at: dict[Address, dict[int, Request[OwnerT]]] = {}
        self._timers: TimerQueue[int] = TimerQueue()

    def ask(
        self, now: int, owner: OwnerT, address: Address, body: pb.PubConnect | pb.Subscribe
    ) -> Request[OwnerT]:
        """Opens a request under a new id, and sends it for the first time."""
        body.request = self._random.getrandbits(64) or 1
        request = Request(body.request, owner, address, pack(body))
        self._open[request.id] = request
        self._at.setdefault(address, {})[request.id] = request
        self.repeat(now, request)
        return request

    def repeat(self, now: int, request: Request[OwnerT]) -> None:
        """Sends it once more, and waits longer than the last time."""
        self._timers.set(request.id, now + retry_after(request.tries, self._random))
        request.tries += 1
        request.challenges = 0
        self._send(now, request)

    def settle(self, request: Request[OwnerT]) -> None:
        """Repeats it no more; an answer that comes late still counts."""
        self._timers.cancel(request.id)

    def close(self, request: Request[OwnerT]) -> None:
        """Forgets it. Idempotent."""
        self._timers.cancel(request.id)
        self._open.pop(request.id, None)
        there = self._at.get(request.address, {})
        there.pop(request.id, None)
        if not there:
            self._at.pop(request.address, None)

    def handle_challenge(self, now: int, source: Address, challenge: pb.Challenge) -> None:
        """§4.1: sends again, with the token, what went to `source` without it and is still repeated. Unasked
        for, it is ignored."""
        asked = self._at.get(source)
        if not asked or not challenge.token:
            return
        keep_token(
            self._tokens, now, source, challenge.token, challenge.lifetime_s * SECOND or TOKEN_LIFETIME
        )
        for request in [request for request in asked.values() if request.id in self._timers]:
            if request.token != challenge.token and request.challenges < _CHALLENGES_PER_TRY:
                request.challenges += 1
                self._send(now, request)

    def find(self, request_id: int) -> Request[OwnerT] | None:
        """The open request under this id."""
        return self._open.get(request_id)

    def unanswered(self, now: int) -> Iterator[Request[OwnerT]]:
        """One after the other whose present try has waited long enough: repeat, settle or close it."""
        for request_id in self._timers.due(now):
            yield self._open[request_id]

    def poll_timeout(self) -> int | None:
        """When the next try has waited long enough."""
        return self._timers.next()

    def __len__(self) -> int:
        return len(self._open)

    def _send(self, now: int, request: Request[OwnerT]) -> None:
        request.token = self._tokens.get(now, request.address) or b""
        request.sent_at = now
        self._core.send_to(request.address, request.packet, request.token, REQUEST_PADDING)
