"""Requests outside of a session: PUBCONNECT and SUBSCRIBE, until they are answered (§4.1, §5.2, §6.1).

The id of a request has 64 random bits. An answer counts only for an open request with its id. It may come
from any address, because the owner that answers may be a node to which the client never wrote. Whoever cannot
read the client's datagrams cannot guess the id.

A node that does not know the client's address answers CHALLENGE, which names no request. It concerns all
requests that went to its source with another token, or with none. The client sends these again at once; that
is no new try. The number of challenges that it follows for each try is bounded, so that two peers cannot keep
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
from hbroker.protocol.timers import SECOND, TimerQueue, retry_after

__all__ = ["TOKEN_LIFETIME", "Request", "Requests", "TokenCache", "keep_token", "reachable"]

OwnerT = TypeVar("OwnerT")

TokenCache: TypeAlias = ExpiringCache[Address, bytes]

TOKEN_LIFETIME: Final = 120 * SECOND
_LONGEST_TOKEN: Final = 64
_CHALLENGES_PER_TRY: Final = 3
_UNSPECIFIED: Final = frozenset({"0.0.0.0", "::"})


def keep_token(tokens: TokenCache, now: int, address: Address, token: bytes, lifetime: int) -> None:
    """Stores a token that a node sent (§4.2). An empty or oversized token is ignored. `lifetime`:
    microseconds."""
    if 0 < len(token) <= _LONGEST_TOKEN:
        tokens.put(address, token, now + min(lifetime, TOKEN_LIFETIME))


def reachable(advertised: pb.Address, fallback: Address) -> Address:
    """The address that a node advertises; `fallback`, if nobody can send to the advertised one."""
    address = address_from(advertised)
    return fallback if address is None or address[0] in _UNSPECIFIED else address


@dataclass(slots=True, eq=False)
class Request(Generic[OwnerT]):
    """One request to one node. `owner`: the object that waits for the answer."""

    id: int
    owner: OwnerT
    address: Address
    packet: bytes
    tries: int = 0
    sent_at: int = 0
    token: bytes = b""
    challenges: int = 0


class Requests(Generic[OwnerT]):
    """The open requests of one requester: sends, repeats, and finds them by their ids."""

    __slots__ = ("_at", "_core", "_open", "_random", "_timers", "_tokens")

    def __init__(self, core: Core, random: Random, tokens: TokenCache) -> None:
        self._core = core
        self._random = random
        self._tokens = tokens
        self._open: dict[int, Request[OwnerT]] = {}
        self._at: dict[Address, dict[int, Request[OwnerT]]] = {}
        self._timers: TimerQueue[int] = TimerQueue()

    def open(
        self, now: int, owner: OwnerT, address: Address, body: pb.PubConnect | pb.Subscribe
    ) -> Request[OwnerT]:
        """Opens a request with a new id, and sends it."""
        body.request = self._random.getrandbits(64) or 1
        request = Request(body.request, owner, address, pack(body))
        self._open[request.id] = request
        self._at.setdefault(address, {})[request.id] = request
        self.repeat(now, request)
        return request

    def repeat(self, now: int, request: Request[OwnerT]) -> None:
        """Sends the request once more, and waits longer than the last time."""
        self._timers.set(request.id, now + retry_after(request.tries, self._random))
        request.tries += 1
        request.challenges = 0
        self._send(now, request)

    def stop_repeating(self, request: Request[OwnerT]) -> None:
        """Stops repeating the request. A late answer still counts."""
        self._timers.cancel(request.id)

    def close(self, request: Request[OwnerT]) -> None:
        """Removes the request. Idempotent."""
        self._timers.cancel(request.id)
        self._open.pop(request.id, None)
        there = self._at.get(request.address, {})
        there.pop(request.id, None)
        if not there:
            self._at.pop(request.address, None)

    def handle_challenge(self, now: int, source: Address, challenge: pb.Challenge) -> None:
        """§4.1: sends the requests to `source` again that are still repeated and had another token. Ignores a
        challenge that no request has caused."""
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
        """The open request with this id, or None."""
        return self._open.get(request_id)

    def unanswered(self, now: int) -> Iterator[Request[OwnerT]]:
        """Yields each request whose present try has had no answer in time. The caller repeats, settles or
        closes it."""
        for request_id in self._timers.due(now):
            yield self._open[request_id]

    def poll_timeout(self) -> int | None:
        """When the next try ends, in microseconds; None: no request is repeated."""
        return self._timers.next()

    def __len__(self) -> int:
        return len(self._open)

    def _send(self, now: int, request: Request[OwnerT]) -> None:
        request.token = self._tokens.get(now, request.address) or b""
        request.sent_at = now
        self._core.send_to(request.address, request.packet, request.token, REQUEST_PADDING)
