"""The messages of some filters, and an outcome to wait for, for the asynchronous client."""
# ruff: noqa: ASYNC109 (a timeout of one's own turns into an error that says what was tried)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from hbroker.errors import NotConnected
from hbroker.protocol.results import Result, Subscribed, SubscriptionFailed
from hbroker.runtime.client import failure
from hbroker.runtime.client.dispatcher import Dispatcher, microseconds

if TYPE_CHECKING:
    from hbroker._native import Message
    from hbroker.protocol.subscriptions.client.options import Options

__all__ = ["PendingRequest", "Subscription"]


class PendingRequest:
    """Awaits one outcome."""

    def __init__(self) -> None:
        self._future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def set(self, result: Result | Exception) -> None:
        """Sets the outcome, or an exception in its place. Only the first call counts."""
        if self._future.done():
            return
        if isinstance(result, Exception):
            self._future.set_exception(result)
        else:
            self._future.set_result(result)

    def __await__(self) -> Generator[object, None, Result]:
        return self._future.__await__()


class Subscription:
    """The messages of some filters, as an asynchronous iterator. Made by `Client.subscribe`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        wake: Callable[[], None],
        filters: tuple[str, ...],
        options: Options,
        queue: int,
        timeout: float,
    ) -> None:
        self.filters = filters
        self.qos = options.qos
        self.owners: tuple[str, ...] = ()
        """The names of the nodes that owned topics of the filters when the subscription became complete."""
        self.resumed = False
        """Whether every owner had the subscription from an earlier run of the client (docs/protocol.md §6.4).
        Then the owners have queued its messages since, within the bounds of the queue and the expiry of the
        session."""
        self._dispatcher = dispatcher
        self._wake = wake
        self._options = options
        self._timeout = timeout
        self._ready = asyncio.Event()
        self._inbox = dispatcher.new_inbox(queue, options.qos, self._ready.set)
        self._ids: list[int] = []

    def __await__(self) -> Generator[object, None, Subscription]:
        return self._open().__await__()

    async def __aenter__(self) -> Subscription:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        message = self._inbox.pop()
        if message is None:
            message = await self._take()
        if message is None:
            raise StopAsyncIteration
        return message

    async def next(self, timeout: float | None = None) -> Message | None:
        """The next message. None: no message arrived within `timeout` seconds, or the subscription is
        closed."""
        message = self._inbox.pop()
        if message is not None:
            return message
        try:
            async with asyncio.timeout(timeout):
                return await self._take()
        except TimeoutError:
            return None

    async def close(self, *, keep: bool | None = None) -> None:
        """Ends the subscription here. Messages that the application has not read are discarded. Idempotent.

        `keep`: the subscription stays in the session. While no run of the client is connected, the owners
        queue its messages for the next run. While this run is still connected, its messages wait for some 30
        s, and are then discarded (docs/protocol.md §6.4). None: as True if the session is persistent, else as
        False. False: every owner ends the subscription.
        """
        ids, self._ids = self._ids, []
        if not (ending := self._dispatcher.close_inbox(self._inbox, ids, keep=keep)):
            return
        pending = [PendingRequest() for _ in ending]
        for subscription, ended in zip(ending, pending, strict=True):
            self._dispatcher.unsubscribe(subscription, ended.set)
        self._wake()
        with suppress(NotConnected):  # The client was closed meanwhile, and its subscriptions with it.
            for ended in pending:
                await ended

    @property
    def dropped(self) -> int:
        """How many messages of QoS 0 were discarded because the application did not read them in time."""
        return self._inbox.dropped

    async def _open(self) -> Subscription:
        dispatcher = self._dispatcher
        pending = []
        try:
            for filter in self.filters:
                pending.append(PendingRequest())
                timeout_us = microseconds(self._timeout)
                self._ids.append(
                    dispatcher.subscribe(filter, self._options, self._inbox, timeout_us, pending[-1].set)
                )
            self._wake()
            owners: set[str] = set()
            self.resumed = True
            for complete in pending:
                match await complete:
                    case Subscribed(owners=some, resumed=resumed):
                        owners.update(some)
                        self.resumed &= resumed
                    case SubscriptionFailed() as failed:
                        raise failure.of_request(failed, self._timeout)
        except BaseException:
            self.resumed = False
            await self.close(keep=False)
            raise
        self.owners = tuple(sorted(owners))
        return self

    async def _take(self) -> Message | None:
        while (message := self._inbox.pop()) is None and not self._inbox.is_closed:
            self._ready.clear()
            await self._ready.wait()
        return message
