"""The blocking API: the same as `hbroker.connect` and its `Client`, for threads, without an event loop.

    with hbroker.sync.connect("127.0.0.1:7700") as client:
        client.publish("home/kitchen/oven/temperature", b"180", qos=1)
        with client.subscribe("home/+/oven/#", qos=1) as messages:
            for message in messages:
                print(message.topic, message.payload)

Any number of threads may use one client. The client has one thread of its own, which runs the control loop
under the client's lock. So links, leases and look-ups go on while the application does something else. A call
that waits for an outcome waits on the lock's condition. All times are in seconds.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Unpack

from hbroker.errors import Backpressure, InvalidTopic
from hbroker.properties import Properties
from hbroker.protocol.results import (
    Published,
    Resolved,
    ResolveFailed,
    Result,
    Subscribed,
    SubscriptionFailed,
    WillRefused,
)
from hbroker.runtime.address import AddressLike, parse_place, resolve_both
from hbroker.runtime.client import failure
from hbroker.runtime.client.delivery import Delivery, options_of
from hbroker.runtime.client.dispatcher import (
    CLOSE_TIMEOUT,
    LEAVE_TIMEOUT,
    Callback,
    Dispatcher,
    microseconds,
    new_endpoint,
)
from hbroker.runtime.client.identity import Identity, Profile
from hbroker.runtime.client.publication import Batch, Messages, Receipt, parts
from hbroker.runtime.control_loop import UNWATCHED_POLL_S, ControlLoop, clock
from hbroker.runtime.credentials import PathLike

if TYPE_CHECKING:
    from hbroker._native import Message
    from hbroker.protocol.packets import Address
    from hbroker.protocol.results import Resolution
    from hbroker.protocol.subscriptions.client.options import Options

__all__ = ["Client", "Subscription", "connect"]

TIMEOUT: Final = 10.0
_BACKPRESSURE_POLL: Final = (0.001, 0.02)
_GRACE: Final = 1.0
"""Seconds that a caller waits longer than the protocol, so that the protocol's own error, with its reason,
arrives first."""


def connect(
    root: AddressLike = None,
    *,
    listen: AddressLike = None,
    timeout: float = TIMEOUT,
    authority: PathLike | None = None,
    token: PathLike | None = None,
    workspace: str | None = None,
    **profile: Unpack[Profile],
) -> Client:
    """Connects to the network at its root, as `hbroker.connect` does. The client is a context manager."""
    address, here = resolve_both(parse_place(root), listen)
    identity = Identity.of(**profile).secured(address, authority, token, workspace)
    client = Client(address, identity, here, timeout)
    try:
        client._start()
    except BaseException:
        client._stop()
        raise
    return client


class Client:
    """A publisher and subscriber, made by `connect`."""

    def __init__(self, root: Address, identity: Identity, listen: Address, timeout: float) -> None:
        self.client_id = identity.client_id
        self.workspace = identity.workspace.name
        self.root = root
        self._timeout = timeout
        self._will = identity.will
        self._credential_files = identity.credential_files
        self._dispatcher = Dispatcher(new_endpoint(listen, identity), root, identity, self._wake)
        self._condition = threading.Condition()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self._is_running = True
        self._thread = threading.Thread(target=self._run, name="hbroker-client", daemon=True)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Change

    def publish(
        self,
        topic: str,
        payload: bytes | str = b"",
        *,
        timeout: float | None = None,
        **properties: Unpack[Properties],
    ) -> Receipt:
        """As `hbroker.Client.publish`."""
        qos = properties.get("qos", 0)
        limit = self._timeout if timeout is None else timeout
        deadline = clock() + microseconds(limit)
        pending = _PendingRequest(self._condition)
        with self._condition:
            sequence = self._publish(topic, payload, properties, pending, deadline, limit)
            if not qos:
                return Receipt(topic, sequence, 0, None)
            if not pending.wait(max(0, deadline - clock()) / 1e6):
                self._dispatcher.abandon(sequence)
                raise failure.publication_timeout(topic, limit)
        value = pending.result()
        assert isinstance(value, Published)
        error = failure.of_publication(value)
        if error is not None:
            raise error
        return Receipt(topic, sequence, qos, value.reason)

    def publish_many(
        self, messages: Messages, *, timeout: float | None = None, **properties: Unpack[Properties]
    ) -> None:
        """As `hbroker.Client.publish_many`."""
        limit = self._timeout if timeout is None else timeout
        deadline = clock() + microseconds(limit)
        batch = Batch(self._condition.notify_all)
        topic = ""
        try:
            for part in parts(messages):
                topic, _ = part[-1]
                with self._condition:
                    self._publish_part(part, properties, batch, deadline, limit)
                if batch.error is not None:
                    break
            with self._condition:
                if not self._condition.wait_for(lambda: batch.is_over, max(0, deadline - clock()) / 1e6):
                    raise failure.publication_timeout(topic, limit)
        finally:
            with self._condition:
                self._dispatcher.abandon(*batch.pending)
        if batch.error is not None:
            raise batch.error

    def try_publish(self, topic: str, payload: bytes | str = b"", **properties: Unpack[Properties]) -> int:
        """As `hbroker.Client.try_publish`."""
        with self._condition:
            return self._dispatcher.publish(topic, payload, properties)

    def subscribe(
        self,
        *filters: str,
        queue: int = 10_000,
        timeout: float | None = None,
        **delivery: Unpack[Delivery],
    ) -> Subscription:
        """As `hbroker.Client.subscribe`, but returns when the subscription is complete."""
        if not filters:
            raise InvalidTopic("subscribe: at least one filter is needed")
        opened = Subscription(self, filters, options_of(delivery), queue)
        opened._open(self._timeout if timeout is None else timeout)
        return opened

    def acknowledge(self, *messages: Message) -> None:
        """As `hbroker.Client.acknowledge`."""
        with self._condition:
            self._dispatcher.acknowledge(messages)

    def resolve(self, topic: str, *, trace: bool = False, timeout: float | None = None) -> Resolution:
        """As `hbroker.Client.resolve`."""
        limit = self._timeout if timeout is None else timeout
        match self._ask(lambda set: self._dispatcher.resolve(topic, trace, microseconds(limit), set), limit):
            case Resolved(resolution=resolution):
                return resolution
            case ResolveFailed() as failed:
                raise failure.of_request(failed, limit)
        raise AssertionError("a look-up ends in one of these")

    def drain(self, timeout: float | None = None) -> bool:
        """As `hbroker.Client.drain`."""
        return self._dispatcher.endpoint.drain(self._timeout if timeout is None else timeout)

    def close(self, timeout: float | None = None, *, end_session: bool = False) -> None:
        """As `hbroker.Client.close`."""
        if not self._dispatcher.is_closed:
            self.drain(CLOSE_TIMEOUT if timeout is None else timeout)
            with self._condition:
                self._dispatcher.close(end_session=end_session)
                self._condition.notify_all()
            self._dispatcher.endpoint.drain(LEAVE_TIMEOUT)
        self._stop()

    # Read

    @property
    def address(self) -> Address:
        """The address of the client's UDP socket."""
        return self._dispatcher.endpoint.address

    def counters(self) -> dict[str, int]:
        """As `hbroker.Client.counters`."""
        with self._condition:
            return self._dispatcher.counters()

    @property
    def failures(self) -> tuple[Published, ...]:
        """As `hbroker.Client.failures`."""
        with self._condition:
            return self._dispatcher.failures

    # Within this module

    def _start(self) -> None:
        self._thread.start()
        limit = self._timeout
        match self._ask(lambda set: self._dispatcher.start(microseconds(limit), set), limit):
            case ResolveFailed() as failed:
                raise failure.of_root(failed, limit)
        if (will := self._will) is not None:
            match self._ask(lambda set: self._dispatcher.set_will(will, microseconds(limit), set), limit):
                case WillRefused() as refused:
                    raise failure.of_will(refused, limit)

    def _stop(self) -> None:
        with self._condition:
            was_running, self._is_running = self._is_running, False
        if not was_running:
            return
        self._wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._dispatcher.endpoint.shutdown()
        with self._condition:
            self._dispatcher.end()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _ask(self, ask: Callable[[Callback], object], timeout: float) -> Result:
        pending = _PendingRequest(self._condition)
        with self._condition:
            ask(pending.set)
            self._wake()
            pending.wait(timeout + _GRACE)
        return pending.result()

    def _publish(
        self,
        topic: str,
        payload: bytes | str,
        properties: Properties,
        pending: _PendingRequest,
        deadline: int,
        limit: float,
    ) -> int:
        pause, longest = _BACKPRESSURE_POLL
        while True:
            try:
                return self._dispatcher.publish(topic, payload, properties, pending.set)
            except Backpressure:
                if clock() >= deadline:
                    raise failure.publication_timeout(topic, limit) from None
                self._condition.wait(pause)
                pause = min(2 * pause, longest)

    def _publish_part(
        self, part: list[tuple[str, bytes]], properties: Properties, batch: Batch, deadline: int, limit: float
    ) -> None:
        pause, longest = _BACKPRESSURE_POLL
        while part and batch.error is None:
            try:
                self._dispatcher.publish_many(part, properties, batch)
            except Backpressure:
                if clock() >= deadline:
                    raise failure.publication_timeout(part[0][0], limit) from None
                self._condition.wait(pause)
                pause = min(2 * pause, longest)

    def _run(self) -> None:
        control_loop = ControlLoop(
            self._dispatcher.endpoint,
            self._dispatcher.control,
            self._dispatcher.dispatch,
            self._dispatcher.fail,
            self._credential_files,
        )
        watched = select.poll()
        watched.register(self._wake_reader, select.POLLIN)
        is_watching = False
        while self._is_running:
            with self._condition:
                now = clock()
                has_more = control_loop.run_iteration(now)
                pause = control_loop.pause_s(now)
                is_blocked = self._dispatcher.is_blocked
                self._condition.notify_all()
            if self._dispatcher.has_failed:
                if self._dispatcher.is_taken_over:
                    self._dispatcher.endpoint.shutdown()
                return
            if is_watching == is_blocked:
                is_watching = not is_blocked
                watched.register(self._dispatcher.endpoint.fileno(), select.POLLIN if is_watching else 0)
            if is_blocked:
                pause = UNWATCHED_POLL_S if pause is None else min(pause, UNWATCHED_POLL_S)
            ready = watched.poll(0 if has_more else None if pause is None else pause * 1000)
            if any(descriptor == self._wake_reader for descriptor, _ in ready):
                os.read(self._wake_reader, 4096)

    def _wake(self) -> None:
        try:
            os.write(self._wake_writer, b"\0")
        except BlockingIOError:
            return  # The pipe is full, so the thread wakes anyway.


class Subscription:
    """The messages of some filters, as a blocking iterator. Made by `Client.subscribe`."""

    def __init__(self, client: Client, filters: tuple[str, ...], options: Options, queue: int) -> None:
        self.filters = filters
        self.qos = options.qos
        self.owners: tuple[str, ...] = ()
        """The names of the nodes that owned topics of the filters when the subscription became complete."""
        self.resumed = False
        """As `hbroker.Subscription.resumed`."""
        self._client = client
        self._condition = client._condition
        self._options = options
        self._inbox = client._dispatcher.new_inbox(queue, options.qos, self._condition.notify_all)
        self._ids: list[int] = []

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        while (message := self.next()) is not None:
            yield message

    def next(self, timeout: float | None = None) -> Message | None:
        """The next message. None: no message arrived within `timeout` seconds, or the subscription is
        closed."""
        deadline = None if timeout is None else clock() + microseconds(timeout)
        with self._condition:
            while True:
                message = self._inbox.pop()
                if message is not None or self._inbox.is_closed:
                    return message
                pause = None if deadline is None else (deadline - clock()) / 1e6
                if pause is not None and pause <= 0:
                    return None
                self._condition.wait(pause)

    def close(self, *, keep: bool | None = None) -> None:
        """As `hbroker.Subscription.close`."""
        dispatcher = self._client._dispatcher
        with self._condition:
            ids, self._ids = self._ids, []
            if not (ending := dispatcher.close_inbox(self._inbox, ids, keep=keep)):
                return
            pending = [_PendingRequest(self._condition) for _ in ending]
            for subscription, ended in zip(ending, pending, strict=True):
                dispatcher.unsubscribe(subscription, ended.set)
            self._client._wake()
            for ended in pending:
                ended.wait(self._client._timeout)

    @property
    def dropped(self) -> int:
        """How many messages of QoS 0 were discarded because the application did not read them in time."""
        return self._inbox.dropped

    def _open(self, timeout: float) -> None:
        dispatcher = self._client._dispatcher
        owners: set[str] = set()
        try:
            with self._condition:
                pending = [_PendingRequest(self._condition) for _ in self.filters]
                for filter, complete in zip(self.filters, pending, strict=True):
                    timeout_us = microseconds(timeout)
                    self._ids.append(
                        dispatcher.subscribe(filter, self._options, self._inbox, timeout_us, complete.set)
                    )
                self._client._wake()
                for complete in pending:
                    complete.wait(timeout + _GRACE)
            self.resumed = True
            for complete in pending:
                match complete.result():
                    case Subscribed(owners=some, resumed=resumed):
                        owners.update(some)
                        self.resumed &= resumed
                    case SubscriptionFailed() as failed:
                        raise failure.of_request(failed, timeout)
        except BaseException:
            self.resumed = False
            self.close(keep=False)
            raise
        self.owners = tuple(sorted(owners))


class _PendingRequest:
    """One outcome, for which a caller waits on the client's condition."""

    def __init__(self, condition: threading.Condition) -> None:
        self._condition = condition
        self.value: Result | Exception | None = None

    def set(self, value: Result | Exception) -> None:
        self.value = value
        self._condition.notify_all()

    def wait(self, timeout: float) -> bool:
        return self._condition.wait_for(lambda: self.value is not None, timeout)

    def result(self) -> Result:
        if self.value is None:
            raise RuntimeError("the client's thread has stopped")
        if isinstance(self.value, Exception):
            raise self.value
        return self.value
