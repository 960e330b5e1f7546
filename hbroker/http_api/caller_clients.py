"""Clients of the network with the tokens of callers.

What a caller publishes or subscribes to goes through a client that has the caller's own token. So the owner
of the topic decides what the caller may do, and the API cannot be led to lend its own rights.

A client is made for the first request of a caller, is shared by all of his requests, and is closed when it
was not used for `IDLE_S`, or when another caller needs its place.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from hbroker.http_api.middleware.authentication import Caller
from hbroker.http_api.problems import Refusal
from hbroker.runtime.client.async_client import Client, Connecting

__all__ = ["IDLE_S", "MOST_CLIENTS", "CallerClients"]

IDLE_S: Final = 60.0
MOST_CLIENTS: Final = 64
"""The most callers that have a client at the same time. Each has a socket and a thread."""


@dataclass(slots=True, eq=False)
class _Place:
    """The client of one caller. `users`: requests that use it now."""

    ready: asyncio.Future[Client] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    users: int = 0
    left_at: float = 0.0


class CallerClients:
    """The clients of all callers. `connect(token)`: a client with this token; None: without one."""

    def __init__(self, connect: Callable[[str | None], Connecting]) -> None:
        self._connect = connect
        self._places: OrderedDict[str, _Place] = OrderedDict()
        """By the caller's key, the one that was used last at the end."""

    @asynccontextmanager
    async def of(self, caller: Caller) -> AsyncIterator[Client]:
        """The client of a caller. Raises the errors of `hbroker.connect`, and Refusal (503) if too many
        callers have one."""
        place = self._places.get(caller.key)
        if place is None:
            await self._make_room()
            place = self._places.setdefault(caller.key, _Place())
        self._places.move_to_end(caller.key)
        place.users += 1
        try:
            yield await self._client(caller, place)
        finally:
            place.users -= 1
            place.left_at = time.monotonic()

    async def close_idle(self) -> None:
        """Closes the clients that were not used for a while. To be called from time to time."""
        limit = time.monotonic() - IDLE_S
        await self._close(
            [key for key, each in self._places.items() if not each.users and each.left_at < limit]
        )

    async def close(self) -> None:
        """Closes all clients."""
        await self._close(list(self._places))

    async def _client(self, caller: Caller, place: _Place) -> Client:
        if place.users == 1 and not place.ready.done():
            try:
                client = await self._connect(caller.token)
            except BaseException as error:
                self._places.pop(caller.key, None)
                place.ready.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
                place.ready.exception()
                raise
            place.ready.set_result(client)
        return await asyncio.shield(place.ready)

    async def _make_room(self) -> None:
        if len(self._places) < MOST_CLIENTS:
            return
        unused = next((key for key, each in self._places.items() if not each.users), None)
        if unused is None:
            text = f"{MOST_CLIENTS} callers have requests under way: try again later"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "1"})
        await self._close([unused])

    async def _close(self, keys: list[str]) -> None:
        places = [place for key in keys if (place := self._places.pop(key, None)) is not None]
        ready = [each.ready.result() for each in places if each.ready.done() and not each.ready.exception()]
        await asyncio.gather(*(client.close() for client in ready))
