"""The asynchronous API: `hbroker.connect` and `Client`.

    async with hbroker.connect("127.0.0.1:7700") as client:
        await client.publish("home/kitchen/oven/temperature", b"180", qos=1)
        async with client.subscribe("home/+/oven/#", qos=1) as messages:
            async for message in messages:
                print(message.topic, message.payload)

A client belongs to the event loop in which it was connected. All times are in seconds.
"""
# ruff: noqa: ASYNC109 (a timeout of one's own turns into an error that says what was tried)

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Unpack

from hbroker.errors import Backpressure, InvalidTopic
from hbroker.properties import Properties
from hbroker.protocol.results import (
    Published,
    Resolved,
    ResolveFailed,
    WillRefused,
)
from hbroker.runtime.address import AddressLike, parse_place, resolve_both
from hbroker.runtime.client import failure
from hbroker.runtime.client.delivery import Delivery, options_of
from hbroker.runtime.client.dispatcher import (
    CLOSE_TIMEOUT,
    LEAVE_TIMEOUT,
    Dispatcher,
    microseconds,
    new_endpoint,
)
from hbroker.runtime.client.identity import Identity, Profile, Will
from hbroker.runtime.client.publication import Batch, Messages, Receipt, parts
from hbroker.runtime.client.subscription import PendingRequest, Subscription
from hbroker.runtime.credentials import PathLike
from hbroker.runtime.driver import Driver

if TYPE_CHECKING:
    from hbroker._native import Endpoint, Message
    from hbroker.protocol.packets import Address
    from hbroker.protocol.resolution.caches import ResolverCaches
    from hbroker.protocol.results import Resolution
    from hbroker.runtime.client.pool_driver import PoolEndpoint

__all__ = ["Client", "Connecting", "connect", "connect_with_token"]

TIMEOUT: Final = 10.0
_BACKPRESSURE_POLL: Final = (0.001, 0.02)


def connect(
    root: AddressLike = None,
    *,
    listen: AddressLike = None,
    timeout: float = TIMEOUT,
    authority: PathLike | None = None,
    token: PathLike | None = None,
    workspace: str | None = None,
    **profile: Unpack[Profile],
) -> Connecting:
    """Connects to the network at its root: `await` it, or use it with `async with`.

    `root`: as in `AddressLike`. `listen`: the address of the client's socket; None: any free port. `timeout`:
    the default of every request of the client, in seconds. `authority`: the file with the certificate of the
    network's authority, if its security is on; None: as `HBROKER_AUTHORITY` says, or that of the network with
    this root on this host. `token`: the file with the client's token, which says what it may do; None: as
    `HBROKER_TOKEN` says, or the operator's token of the network with this root on this host, or none.
    `workspace`: whose topics the client uses, without their prefix (docs/workspaces.md); None: that of its
    token, or the default one. `profile`: as in `Profile`.

    Raises Unreachable if no root answers, Refused if no node accepts the will, OSError if the root has no
    address, the socket cannot be bound or a file cannot be read, ConfigError if a file is not usable or the
    token is of another workspace, and ValueError for an invalid argument.
    """
    identity = Identity.of(**profile)

    def secured(root: Address) -> Identity:
        return identity.secured(root, authority, token, workspace)

    return Connecting(parse_place(root), secured, listen, timeout)


def connect_with_token(
    root: Address, token: str, authority: PathLike, *, timeout: float = TIMEOUT, **profile: Unpack[Profile]
) -> Connecting:
    """As `connect`, for a client whose token is in no file. `token`: its text. `authority`: as in
    `connect`."""
    identity = Identity.of(**profile)
    return Connecting(root, lambda _: identity.with_token(authority, token), None, timeout)


class Connecting:
    """The result of `connect`; awaiting or entering it makes a `Client`. `secured(root)`: reads the files
    that the client needs, and returns its identity."""

    def __init__(
        self,
        root: tuple[str, int],
        secured: Callable[[Address], Identity],
        listen: AddressLike,
        timeout: float,
    ) -> None:
        self._root = root
        self._secured = secured
        self._listen = listen
        self._timeout = timeout
        self._client: Client | None = None

    def __await__(self) -> Generator[object, None, Client]:
        return self._connect().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    async def _connect(self) -> Client:
        root, listen = await asyncio.to_thread(resolve_both, self._root, self._listen)
        identity = await asyncio.to_thread(self._secured, root)
        client = Client(root, identity, new_endpoint(listen, identity), self._timeout)
        try:
            await client._start()
        except BaseException:
            client._stop()
            raise
        return client


class Client:
    """A publisher and subscriber. Made by `connect`, or by a `ClientPool`, which passes a `drive` of its
    own."""

    def __init__(
        self,
        root: Address,
        identity: Identity,
        endpoint: Endpoint,
        timeout: float,
        drive: Callable[..., Driver | PoolEndpoint] = Driver,
        caches: ResolverCaches | None = None,
    ) -> None:
        self.client_id = identity.client_id
        self.workspace = identity.workspace.name
        self.root = root
        self._timeout = timeout
        self._will = identity.will
        self._dispatcher = Dispatcher(endpoint, root, identity, self._on_unblocked, caches)
        self._driver = drive(
            endpoint,
            self._dispatcher.control,
            on_iteration=self._on_iteration,
            on_error=self._dispatcher.fail,
            credential_files=identity.credential_files,
        )

    # Change

    async def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        timeout: float | None = None,
        **properties: Unpack[Properties],
    ) -> Receipt:
        """Publishes a message.

        At QoS 0 it returns when the message is queued. At QoS 1 and 2 it returns when the message is
        distributed (docs/protocol.md §7.3). While the queue or the credit is full, it waits. Raises
        InvalidTopic, PayloadTooLarge, Refused, Unreachable (after `timeout` seconds; the message may still be
        distributed), NotConnected, and ValueError for a QoS or another number that is not valid.
        """
        if not properties.get("qos", 0):
            try:
                return Receipt(topic, self._dispatcher.publish(topic, payload, properties), 0, None)
            except Backpressure:
                pass  # The code below waits for room.
        timeout = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout):
                return await self._publish(topic, payload, properties)
        except TimeoutError:
            raise failure.publication_timeout(topic, timeout) from None

    async def publish_many(
        self, messages: Messages, *, timeout: float | None = None, **properties: Unpack[Properties]
    ) -> None:
        """Publishes messages, each (topic, payload), in order and with the same properties. This costs a
        fraction of publishing each by itself.

        At QoS 0 it returns when all are queued. At QoS 1 and 2 it returns when all are distributed. While the
        queue or the credit is full, it waits. Raises what `publish` raises, for the first message that fails.
        All messages before that one are published. At QoS 1 and 2 the messages after it may be published,
        too.
        """
        timeout = self._timeout if timeout is None else timeout
        progress = asyncio.Event()
        batch = Batch(progress.set)
        topic = ""
        try:
            async with asyncio.timeout(timeout):
                for part in parts(messages):
                    topic, _ = part[-1]
                    await self._publish_part(part, properties, batch)
                    if batch.error is not None:
                        break
                while not batch.is_over:
                    progress.clear()
                    await progress.wait()
        except TimeoutError:
            raise failure.publication_timeout(topic, timeout) from None
        finally:
            self._dispatcher.abandon(*batch.pending)
        if batch.error is not None:
            raise batch.error

    def try_publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        **properties: Unpack[Properties],
    ) -> int:
        """Queues a message and returns its sequence number. Raises Backpressure instead of waiting.

        If a message of QoS 1 or 2 fails afterwards, `failures` has it.
        """
        return self._dispatcher.publish(topic, payload, properties)

    def subscribe(
        self,
        *filters: str,
        queue: int = 10_000,
        timeout: float | None = None,
        **delivery: Unpack[Delivery],
    ) -> Subscription:
        """Subscribes to one or more filters: `await` it, or use it with `async with`.

        Once it was awaited or entered, every owner of matching topics has the subscription (docs/protocol.md
        §6.2). A message that matches several of its filters arrives once. `$share/group/filter` is a shared
        subscription: each message goes to one member of the group (§6.5).

        `queue`: how many messages wait here for a slow application. Further messages of QoS 0 are discarded
        and counted. Further messages of QoS 1 and 2 stay at their owners. `delivery`: as in `Delivery`.
        Another subscription to the same filter gets the retained messages again, for itself alone. Raises
        InvalidTopic, Refused, Unreachable, ValueError.
        """
        if not filters:
            raise InvalidTopic("subscribe: at least one filter is needed")
        options = options_of(delivery)
        timeout = self._timeout if timeout is None else timeout
        return Subscription(self._dispatcher, self._driver.wake, filters, options, queue, timeout)

    def acknowledge(self, *messages: Message) -> None:
        """Acknowledges messages to their owners, in any order, each once, if the client was connected with
        `acknowledge="explicit"`. Otherwise raises ValueError."""
        self._dispatcher.acknowledge(messages)

    async def resolve(self, topic: str, *, trace: bool = False, timeout: float | None = None) -> Resolution:
        """Resolves the owner of a topic (docs/protocol.md §5.2). `trace`: asks every node from the root down.
        Raises InvalidTopic, Refused, Unreachable, NotConnected."""
        timeout = self._timeout if timeout is None else timeout
        pending = PendingRequest()
        self._dispatcher.resolve(topic, trace, microseconds(timeout), pending.set)
        self._driver.wake()
        match await pending:
            case Resolved(resolution=resolution):
                return resolution
            case ResolveFailed() as failed:
                raise failure.of_request(failed, timeout)
        raise AssertionError("a look-up ends in one of these")

    async def drain(self, timeout: float | None = None) -> bool:
        """Waits until everything published is sent and, at QoS 1 and 2, acknowledged. False: `timeout`
        seconds are over."""
        limit = self._timeout if timeout is None else timeout
        return await asyncio.to_thread(self._dispatcher.endpoint.drain, limit)

    async def close(self, timeout: float | None = None, *, end_session: bool = False) -> None:
        """Drains, leaves every owner, and closes the socket. No will is published. Idempotent.

        `timeout`: seconds to wait for owners that do not acknowledge; None: 2. Messages that were not
        acknowledged by then may be lost; call `drain` before to wait longer. A persistent session stays at
        the owners, offline, unless `end_session`.
        """
        if self._dispatcher.is_closed:
            return
        await self.drain(CLOSE_TIMEOUT if timeout is None else timeout)
        self._dispatcher.close(end_session=end_session)
        await asyncio.to_thread(self._dispatcher.endpoint.drain, LEAVE_TIMEOUT)
        self._stop()

    # Read

    @property
    def address(self) -> Address:
        """The address of the client's UDP socket."""
        return self._dispatcher.endpoint.address

    def counters(self) -> dict[str, int]:
        """The native core's counters and gauges by name, and `publish_failed`, which counts the messages of
        `failures`."""
        return self._dispatcher.counters()

    @property
    def failures(self) -> tuple[Published, ...]:
        """The last messages of QoS 1 and 2 that failed while no caller waited for them, the oldest first."""
        return self._dispatcher.failures

    # Within this module

    async def _start(self) -> None:
        pending = PendingRequest()
        self._dispatcher.start(microseconds(self._timeout), pending.set)
        self._driver.start()
        match await pending:
            case ResolveFailed() as failed:
                raise failure.of_root(failed, self._timeout)
        if self._will is not None:
            await self._register(self._will)

    async def _register(self, will: Will) -> None:
        pending = PendingRequest()
        self._dispatcher.set_will(will, microseconds(self._timeout), pending.set)
        self._driver.wake()
        match await pending:
            case WillRefused() as refused:
                raise failure.of_will(refused, self._timeout)

    def _stop(self) -> None:
        self._driver.stop()
        self._dispatcher.endpoint.shutdown()
        self._dispatcher.end()

    async def _publish(self, topic: str, payload: bytes | str, properties: Properties) -> Receipt:
        pending = PendingRequest()
        pause, longest = _BACKPRESSURE_POLL
        while True:
            try:
                sequence = self._dispatcher.publish(topic, payload, properties, pending.set)
                break
            except Backpressure:
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
        qos = properties.get("qos", 0)
        if not qos:
            return Receipt(topic, sequence, 0, None)
        try:
            result = await pending
        finally:
            self._dispatcher.abandon(sequence)
        assert isinstance(result, Published)
        error = failure.of_publication(result)
        if error is not None:
            raise error
        return Receipt(topic, sequence, qos, result.reason)

    async def _publish_part(
        self, part: list[tuple[str, bytes]], properties: Properties, batch: Batch
    ) -> None:
        pause, longest = _BACKPRESSURE_POLL
        while part and batch.error is None:
            try:
                self._dispatcher.publish_many(part, properties, batch)
            except Backpressure:
                await asyncio.sleep(pause)
                pause = min(2 * pause, longest)
        await asyncio.sleep(0)

    def _on_iteration(self, now: int) -> bool:
        more = self._dispatcher.dispatch(now)
        if self._dispatcher.has_failed:
            self._stop()
            return False
        self._driver.watch(not self._dispatcher.is_blocked)
        return more

    def _on_unblocked(self) -> None:
        self._driver.wake()
