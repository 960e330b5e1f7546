"""A client pool: many clients of one network behind one socket, in one event loop.

    async with client_pool("127.0.0.1:7700") as devices:
        lamp = await devices.connect(client_id="lamp")
        await lamp.publish("home/kitchen/lamp/state", b"on", qos=1)

`hbroker.connect` gives each client a socket and a thread, which is right for a few clients. A pool is for
thousands of clients in one process (docs/architecture.md, "Many clients behind one socket"). Each of them has
a session, links and credit of its own, and its owners see no difference. A `PoolClient` is a `Client` with
another endpoint; `pool_driver` runs its control loop.

A client costs some 25 KiB. A pool and its clients belong to the event loop in which the pool was opened.
"""
# ruff: noqa: ASYNC109 (a timeout of one's own turns into an error that says what was tried)

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, Unpack, cast

from hbroker import _native
from hbroker._native import Endpoint, NativeError
from hbroker.errors import NotConnected
from hbroker.properties import Properties
from hbroker.protocol.packets import Address
from hbroker.protocol.resolution.caches import ResolverCaches
from hbroker.protocol.results import Published, Result
from hbroker.runtime.address import AddressLike, parse_place, resolve_both
from hbroker.runtime.client.async_client import TIMEOUT, Client
from hbroker.runtime.client.dispatcher import CLOSE_TIMEOUT, LEAVE_TIMEOUT, config_of
from hbroker.runtime.client.identity import Identity, PoolClientProfile, random_id
from hbroker.runtime.client.pool_driver import PoolDriver, PoolEndpoint
from hbroker.runtime.credentials import PathLike
from hbroker.workspace import DEFAULT

__all__ = ["ClientPool", "PoolClient", "PoolClientProfile", "client_pool"]

_IDLE_POLL_S: Final = (0.005, 0.05)


def client_pool(
    root: AddressLike = None,
    *,
    listen: AddressLike = None,
    timeout: float = TIMEOUT,
    authority: PathLike | None = None,
    token: PathLike | None = None,
    workspace: str | None = None,
) -> ClientPool:
    """A client pool for the network with this root, to be used with `async with`.

    The arguments are as in `hbroker.connect`. Entering the pool raises Unreachable if no root answers,
    OSError if the root has no address, the socket cannot be bound or a file cannot be read, ConfigError if a
    file is not usable, and ValueError for an invalid address.
    """
    return ClientPool(parse_place(root), listen, timeout, authority, token, workspace)


class ClientPool:
    """Many clients behind one socket. Made by `client_pool`."""

    def __init__(
        self,
        root: tuple[str, int],
        listen: AddressLike,
        timeout: float,
        authority: PathLike | None,
        token: PathLike | None,
        workspace: str | None,
    ) -> None:
        self._place = root
        self._authority = authority
        self._token = token
        self._named = workspace
        self._workspace = DEFAULT
        self._listen = listen
        self._timeout = timeout
        self._root: Address = root
        self._open_driver: PoolDriver | None = None
        self._pool_clients: set[PoolClient] = set()
        self._caches = ResolverCaches.shared()
        """What the clients know about nodes. They share it, because they have the same address."""

    async def __aenter__(self) -> Self:
        self._root, listen = await asyncio.to_thread(resolve_both, self._place, self._listen)
        files = self._authority, self._token
        identity = await asyncio.to_thread(Identity.of().secured, self._root, *files, self._named)
        self._workspace = identity.workspace
        pool = _native.ClientPool(config_of(identity), listen)
        self._open_driver = PoolDriver(pool, asyncio.get_running_loop(), identity.credential_files)
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

    async def connect(self, **profile: Unpack[PoolClientProfile]) -> PoolClient:
        """A new client. It returns once the owner of the will has it, if there is a will. The root is not
        asked again.

        Raises Refused and Unreachable if no node accepts the will, ValueError for an invalid argument or if a
        client of the pool has this session already, and NotConnected if the pool is closed.
        """
        pool_client = self._open(Identity.of(**cast(Any, profile)))
        try:
            await pool_client._begin()
        except BaseException:
            pool_client.vanish()
            raise
        return pool_client

    async def drain(self, timeout: float | None = None) -> bool:
        """As `Client.drain`, for all clients of the pool."""
        limit = self._timeout if timeout is None else timeout
        return await asyncio.to_thread(self._pool_driver.pool.drain, limit)

    async def close(self, timeout: float | None = None, *, end_sessions: bool = False) -> None:
        """Closes every client as `Client.close` does, and the socket. Idempotent."""
        if self._open_driver is None:
            return
        await self.drain(CLOSE_TIMEOUT if timeout is None else timeout)
        for pool_client in list(self._pool_clients):
            pool_client._dispatcher.close(end_session=end_sessions)
        await asyncio.to_thread(self._pool_driver.pool.drain, LEAVE_TIMEOUT)
        self._stop()

    # Read

    def __len__(self) -> int:
        """The number of clients."""
        return len(self._pool_clients)

    @property
    def address(self) -> Address:
        """The address of the pool's UDP socket."""
        return self._pool_driver.pool.address

    def counters(self) -> dict[str, int]:
        """As `Client.counters`, summed over all clients, including those that have ended."""
        return self._pool_driver.pool.counters()

    # Within this module

    @property
    def _pool_driver(self) -> PoolDriver:
        if self._open_driver is None:
            raise NotConnected("the client pool is closed")
        return self._open_driver

    def _open(self, identity: Identity) -> PoolClient:
        identity = identity.within(self._workspace)
        driver, session_options = self._pool_driver, identity.session_options
        try:
            number = driver.pool.open_pool_client(
                session_options.session, persistent=session_options.is_persistent, incarnation=random_id()
            )
        except NativeError as error:
            raise ValueError(f"client {identity.client_id!r}: {error}") from None
        endpoint = driver.add(number, acknowledges=not identity.acknowledges_handled)
        pool_client = PoolClient(self, endpoint, self._root, identity, self._timeout)
        self._pool_clients.add(pool_client)
        return pool_client

    def _stop(self) -> None:
        driver, self._open_driver = self._open_driver, None
        pool_clients = list(self._pool_clients)
        self._pool_clients.clear()
        if driver is not None:
            driver.stop()
        for pool_client in pool_clients:
            pool_client._dispatcher.end()


class PoolClient(Client):
    """One client of a pool, with all methods of `Client`. Made by `ClientPool.connect`."""

    def __init__(
        self,
        client_pool: ClientPool,
        endpoint: PoolEndpoint,
        root: Address,
        identity: Identity,
        timeout: float,
    ) -> None:
        self._pool = client_pool
        self._pool_endpoint = endpoint
        super().__init__(root, identity, cast(Endpoint, endpoint), timeout, endpoint.run, client_pool._caches)

    def publish_then(
        self,
        on_result: Callable[[int | None], None],
        topic: str,
        payload: bytes | str = b"",
        **properties: Unpack[Properties],
    ) -> int:
        """As `try_publish`, at QoS 1 or 2. `on_result` is called with the `Reason` once the outcome is known;
        with None if the client ends before. It serves callers that wait for thousands of messages."""

        def on_outcome(result: Result | Exception) -> None:
            on_result(result.reason if isinstance(result, Published) else None)

        return self._dispatcher.publish(topic, payload, properties, on_outcome)

    async def drain(self, timeout: float | None = None) -> bool:
        """As `Client.drain`, for this client alone."""
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
        """As `Client.close`; the pool's socket stays open."""
        if self._dispatcher.is_closed:
            return
        await self.drain(CLOSE_TIMEOUT if timeout is None else timeout)
        self._dispatcher.close(end_session=end_session)
        self._stop()

    def vanish(self) -> None:
        """Ends without sending anything to the owners, like a device that loses power. They notice its
        silence, and publish its will. Pending requests raise NotConnected. Idempotent."""
        if not self._dispatcher.is_closed:
            self._dispatcher.vanish()
            self._stop()

    async def _begin(self) -> None:
        self._driver.start()
        if self._will is not None:
            await self._register(self._will)

    def _is_busy(self) -> bool:
        counters = self._pool_endpoint.counters()
        return self._dispatcher.has_pending_publications or any(
            counters[name] for name in ("inflight", "waiting", "queued_bytes")
        )

    def _stop(self) -> None:
        super()._stop()
        self._pool._pool_clients.discard(self)
