"""Connects one client's control with the callers that wait for it, whether in asyncio or in threads.

`hbroker.runtime.client.async_client` (asyncio) and `hbroker.sync` (threads) both call it, each so that only
one call runs at a time. The dispatcher gives each outcome to its callback, and each message to its inboxes,
in batches. While an inbox that must not discard messages is full, messages stay in the native core.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from hbroker._native import Config, Endpoint, NativeError, filter_is_valid, topic_is_valid
from hbroker.errors import Backpressure, HBrokerError, InvalidTopic, NotConnected, PayloadTooLarge
from hbroker.properties import Properties
from hbroker.protocol.client import ClientControl
from hbroker.protocol.packets import Reason
from hbroker.protocol.resolution.caches import ResolverCaches
from hbroker.protocol.results import (
    Published,
    Resolved,
    ResolveFailed,
    Result,
    Subscribed,
    SubscriptionFailed,
    TakenOver,
    Unsubscribed,
    WillRefused,
    WillSet,
)
from hbroker.protocol.subscriptions import shared
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.runtime.client.failure import of_publication, of_request, of_takeover
from hbroker.runtime.client.identity import Identity, Will, random_id
from hbroker.runtime.client.inbox import Inbox
from hbroker.runtime.client.publication import Batch, encoded
from hbroker.runtime.control_loop import clock

if TYPE_CHECKING:
    from hbroker._native import Message
    from hbroker.protocol.packets import Address

__all__ = [
    "CLOSE_TIMEOUT",
    "LEAVE_TIMEOUT",
    "Callback",
    "Dispatcher",
    "config_of",
    "microseconds",
    "new_endpoint",
]

Callback: TypeAlias = Callable[[Result | Exception], None]
"""Called with the outcome. An exception: there will be none, because the client has ended, or because of a
defect of this program."""

CLOSE_TIMEOUT: Final = 2.0
"""Seconds that `close` waits for owners, some of which may be dead."""

LEAVE_TIMEOUT: Final = 0.2
"""Seconds that `close` then waits until its LEAVE packets are acknowledged."""

MOST_FAILURES: Final = 100

BATCH: Final = 512
"""Messages that are read at once."""

_HANDLED_BATCH: Final = 64

logger = logging.getLogger(__name__)

_SECOND: Final = 1_000_000


def microseconds(seconds: float) -> int:
    """Seconds as microseconds, the protocol's unit."""
    return round(seconds * _SECOND)


def new_endpoint(listen: Address, identity: Identity) -> Endpoint:
    """An endpoint for a new run of this client. Raises OSError if its socket cannot be bound."""
    return Endpoint(config_of(identity), listen)


def config_of(identity: Identity) -> Config:
    """The native core's settings for a new run of this client."""
    return Config(
        node=False,
        session=identity.session_options.session,
        incarnation=random_id(),
        token_keys=[os.urandom(16)],
        seed=random_id(),
        persistent=identity.session_options.is_persistent,
        named=identity.session_options.is_named,
        hold=identity.acknowledges_handled,
        max_message_bytes=identity.max_message_bytes,
        reassembly_bytes=2 * identity.max_message_bytes,
        receive_messages=identity.receive_messages,
        receive_bytes=identity.receive_bytes,
        credentials=identity.credentials,
        workspace=identity.workspace.name,
    )


class Dispatcher:
    """One client's endpoint, control, callbacks and inboxes. `on_unblocked` is called when messages can be
    read again. `caches`: as in `ClientControl`."""

    def __init__(
        self,
        endpoint: Endpoint,
        root: Address,
        identity: Identity,
        on_unblocked: Callable[[], None],
        caches: ResolverCaches | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.control = ClientControl(
            endpoint, Random(random_id()), root, identity.session_options, caches=caches
        )
        self._client_id = identity.client_id
        self._workspace = identity.workspace
        self.is_persistent = identity.session_options.is_persistent
        """The session outlives its link."""
        self._on_will: Callback | None = None
        self._acknowledges_handled = identity.acknowledges_handled
        self._acknowledges_explicitly = identity.acknowledges_explicitly
        self._incomplete: set[int] = set()
        """Subscriptions that were made with `clean_start` and are not complete. A message that is only for
        these belongs to an earlier run."""
        self._released: set[int] = set()
        """Subscriptions that stay in the session and have no inbox here."""
        self._shared: dict[tuple[int, int], int] = {}
        """For each message that is in several inboxes: in how many of them it was not handled yet."""
        self._handled: list[tuple[int, int]] = []
        self._group_members: set[int] = set()
        """Subscriptions that are a member of a shared group."""
        self._unread_shared: list[tuple[int, int]] = []
        """Messages of shared groups that the client is about to leave, and that the application has not
        handled."""
        self._on_unblocked = on_unblocked
        self._requests: dict[int, Callback] = {}
        self._publications: dict[int, Callback] = {}
        self._inboxes: dict[int, Inbox] = {}
        self._failures: deque[Published] = deque(maxlen=MOST_FAILURES)
        self._failed = 0
        self._error: Exception | None = None
        self.has_failed = False
        """The endpoint has failed. All pending requests have been completed with the error. No iteration may
        follow."""
        self.is_taken_over = False
        """It failed because another run of the client has its session. The endpoint must be shut down at
        once, because its links would take the session back (§6.4)."""

    # In

    def start(self, timeout: int, callback: Callback) -> None:
        """Asks the root whether it serves."""
        self._requests[self.control.start(clock(), timeout)] = callback

    def set_will(self, will: Will, timeout: int, callback: Callback) -> None:
        """Registers the will with the owner of its topic (§6.6)."""
        self._on_will = callback
        self.control.set_will(clock(), will.registered(), timeout=timeout)

    def publish(
        self, topic: str, payload: bytes | str, properties: Properties, callback: Callback | None = None
    ) -> int:
        """Queues a message and returns its sequence number. At QoS 1 and 2 the callback is called with the
        outcome.

        Raises Backpressure if the queue or the credit is full, InvalidTopic, PayloadTooLarge, and ValueError
        for a QoS or another number that is not valid.
        """
        self.check()
        payload = payload if type(payload) is bytes else encoded(payload)
        try:
            sequence = self.endpoint.publish(topic, payload, published_at_us=_wall_clock(), **properties)
        except (NativeError, OverflowError) as error:
            raise self._unpublishable(topic, properties, error) from None
        if sequence is None:
            raise Backpressure(f"too much waits for the owner of {topic!r}")
        if callback is not None and properties.get("qos", 0):
            self._publications[sequence] = callback
        return sequence

    def publish_many(self, part: list[tuple[str, bytes]], properties: Properties, batch: Batch) -> None:
        """Queues messages, each (topic, payload), in order and with the same properties, as long as there is
        room, and removes those from `part`. At QoS 1 and 2 the batch gets each outcome.

        Raises what `publish` raises if not even the first can be queued.
        """
        self.check()
        try:
            sequences = self.endpoint.publish_many(part, published_at_us=_wall_clock(), **properties)
        except (NativeError, OverflowError) as error:
            raise self._unpublishable(part[0][0], properties, error) from None
        if not sequences:
            raise Backpressure(f"too much waits for the owner of {part[0][0]!r}")
        if properties.get("qos", 0):
            self._publications.update(dict.fromkeys(sequences, batch.set))
            batch.pending.update(sequences)
        del part[: len(sequences)]

    def resolve(self, topic: str, trace: bool, timeout: int, callback: Callback) -> None:
        """Resolves the owner of a topic."""
        self.check()
        absolute = self._workspace.absolute(topic)
        if absolute is None or not topic_is_valid(absolute):
            raise self._no_topic(topic)
        lookup_id = self.control.resolve(clock(), absolute, trace=trace, timeout=timeout)
        self._requests[lookup_id] = callback

    def subscribe(self, filter: str, options: Options, inbox: Inbox, timeout: int, callback: Callback) -> int:
        """Subscribes. From now on the messages go to the inbox. The callback is called once the subscription
        is complete."""
        self.check()
        group, plain = shared.split(filter) or ("", "")
        absolute = self._workspace.absolute(plain)
        if absolute is None or not filter_is_valid(absolute):
            raise InvalidTopic(f"not a topic filter{self._of_workspace}: {filter!r}")
        subscription = self.control.subscribe(clock(), absolute, options, group=group, timeout=timeout)
        self._requests[subscription] = callback
        self._inboxes[subscription] = inbox
        if group:
            self._group_members.add(subscription)
        if self.control.session_options.clean_start:
            self._incomplete.add(subscription)
        return subscription

    def unsubscribe(self, subscription: int, callback: Callback) -> None:
        """Ends a subscription. The callback is called when every owner has ended it."""
        self._inboxes.pop(subscription, None)
        self._incomplete.discard(subscription)
        self._requests[subscription] = callback
        self._flush_handled()
        self.control.unsubscribe(clock(), subscription)
        if subscription in self._group_members:
            # §6.5: from here on the core acknowledges no message that is for another member.
            self._group_members.discard(subscription)
            self.endpoint.give_back(self._unread_shared)
            self._unread_shared = []

    def release(self, subscription: int) -> None:
        """Leaves a subscription in the session, and takes no more of its messages."""
        self._inboxes.pop(subscription, None)
        self._group_members.discard(subscription)
        self._released.add(subscription)
        self._flush_handled()
        self.control.release(clock(), subscription)

    def close_inbox(self, inbox: Inbox, subscriptions: Sequence[int], *, keep: bool | None) -> Sequence[int]:
        """Closes an inbox. `keep`: as in `Subscription.close`. Returns the subscriptions that the caller must
        end."""
        keep = self.is_persistent if keep is None else keep
        inbox.close(keep=keep)
        if self.is_closed:
            return []
        if not keep:
            return subscriptions
        for subscription in subscriptions:
            self.release(subscription)
        return []

    def acknowledge(self, messages: Iterable[Message]) -> None:
        """§7.3: acknowledges messages that the application has taken from their inboxes. Does nothing once
        the client is closed: then they go to the session's next run."""
        if not self._acknowledges_explicitly:
            raise ValueError("the client acknowledges by itself: connect it with acknowledge='explicit'")
        if self.is_closed:
            return
        for message in messages:
            self._on_handled(message, True)
        self._flush_handled()

    def abandon(self, *sequences: int) -> None:
        """Forgets the callbacks of these messages."""
        for sequence in sequences:
            self._publications.pop(sequence, None)

    def dispatch(self, now: int) -> bool:
        """Gives all outcomes to their callbacks, and messages to the inboxes. Returns whether there may be
        more messages."""
        if self._incomplete:
            # These messages arrived before the outcomes below, so `_incomplete` still shows which belong to
            # an earlier run.
            while self._read() == BATCH:
                pass
        while (result := self.control.poll_result()) is not None:
            self._handle_result(result)
        fault = self.endpoint.fault
        if fault is not None:
            self._fail_with(NotConnected(f"the client's socket failed: {fault}"))
        if self.has_failed or self.is_blocked:
            return False
        return self._read() == BATCH

    def fail(self, error: Exception) -> None:
        """Completes all pending requests with `error`. If a handler raised it, their outcome is unknown."""
        waiting = [*self._requests.values(), *self._publications.values()]
        if self._on_will is not None:
            waiting.append(self._on_will)
        self._requests.clear()
        self._publications.clear()
        self._on_will = None
        for callback in waiting:
            callback(error)

    def close(self, *, end_session: bool = False) -> None:
        """Leaves every owner, and closes the inboxes. The endpoint stays open. Idempotent."""
        if self._error is not None:
            return
        self._error = NotConnected("the client is closed")
        for inbox in self._inboxes.values():
            inbox.close(keep=True)
        self._flush_handled()
        self.control.leave(end_session=end_session)

    def end(self) -> None:
        """Completes all requests that are still pending with an error, because the endpoint was shut down.
        Idempotent."""
        self.fail(self._error or NotConnected("the client is closed"))

    def vanish(self) -> None:
        """Ends without sending anything to the owners. Completes all pending requests with an error.
        Idempotent."""
        if self._error is None:
            self._error = NotConnected("the client vanished")
            self._fail_with(self._error)

    # Out

    @property
    def is_blocked(self) -> bool:
        """Whether an inbox that must not discard messages is full."""
        return any(inbox.is_blocking for inbox in self._inboxes.values())

    @property
    def has_pending_publications(self) -> bool:
        """Whether the outcome of a published message is pending."""
        return bool(self._publications)

    def counters(self) -> dict[str, int]:
        """The native core's counters and gauges, and `publish_failed`."""
        return {**self.endpoint.counters(), "publish_failed": self._failed}

    @property
    def failures(self) -> tuple[Published, ...]:
        """The last messages that failed without a callback."""
        return tuple(self._failures)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, or the client has failed."""
        return self._error is not None

    def new_inbox(self, limit: int, qos: int, on_ready: Callable[[], None]) -> Inbox:
        """An inbox; `on_ready` wakes its consumer."""
        on_handled = None if self._acknowledges_explicitly else self._on_handled
        callbacks = (on_handled, self._on_unread) if self._acknowledges_handled else (None, None)
        return Inbox(limit, qos, on_ready, self._on_unblocked, *callbacks)

    def check(self) -> None:
        """Raises NotConnected, or the error that ended the client, once it is closed or has failed."""
        if self._error is not None:
            raise self._error

    def _read(self) -> int:
        messages = self.endpoint.poll_messages(BATCH)
        for message in messages:
            subscriptions = message.subscriptions
            if self._incomplete and not message.retained and self._incomplete.issuperset(subscriptions):
                if self._acknowledges_handled:
                    self._on_handled(message, False)
            elif len(subscriptions) == 1 and (inbox := self._inboxes.get(subscriptions[0])) is not None:
                inbox.put(message)
            else:
                self._deliver(message, subscriptions)
        return len(messages)

    def _deliver(self, message: Message, subscriptions: list[int]) -> None:
        """Puts a message into each inbox once. There may be several, or none."""
        inboxes = {id(inbox): inbox for inbox in map(self._inboxes.get, subscriptions) if inbox}
        if self._acknowledges_handled and message.qos:
            if len(inboxes) > 1:
                self._shared[message.copy_id] = len(inboxes)
            elif not inboxes and not self._released.intersection(subscriptions):
                self._on_handled(message, False)
        for inbox in inboxes.values():
            inbox.put(message)

    def _on_handled(self, message: Message, more: bool) -> None:
        """§7.3: reports handled messages to the core, in batches as long as `more` follow."""
        if message.qos and self._is_last(message):
            self._handled.append(message.copy_id)
        if not more or len(self._handled) >= _HANDLED_BATCH:
            self._flush_handled()

    def _on_unread(self, message: Message) -> None:
        """Handles a message that is left in an inbox whose subscription ends or stays in the session."""
        if not message.qos or not self._group_members.issuperset(message.subscriptions):
            self._on_handled(message, False)
        elif self._is_last(message):
            self._unread_shared.append(message.copy_id)

    def _is_last(self, message: Message) -> bool:
        """Counts one inbox less for a message. Returns whether it was the last one."""
        id = message.copy_id
        others = self._shared.pop(id, 1) - 1
        if others:
            self._shared[id] = others
        return not others

    def _flush_handled(self) -> None:
        if self._handled:
            self.endpoint.handled(self._handled)
            self._handled = []

    def _fail_with(self, error: HBrokerError) -> None:
        """Ends the client with an error. Messages that were read can still be taken from the inboxes; then
        they raise the error."""
        self.has_failed = True
        if self._error is None:
            self._error = error
            logger.error("%s", self._error)
        for inbox in self._inboxes.values():
            inbox.close(self._error)
        self.fail(self._error)

    def _no_topic(self, topic: str) -> InvalidTopic:
        return InvalidTopic(f"not a topic name{self._of_workspace}: {topic!r}")

    @property
    def _of_workspace(self) -> str:
        return f" of the workspace {self._workspace.name}" if self._workspace.name else ""

    def _unpublishable(
        self, topic: str, properties: Properties, error: NativeError | OverflowError
    ) -> Exception:
        """The exception for the first message that the core did not take."""
        absolute = self._workspace.absolute(topic)
        if absolute is None or not topic_is_valid(absolute):
            return self._no_topic(topic)
        if properties.get("qos", 0) not in (0, 1, 2) or isinstance(error, OverflowError):
            return ValueError(str(error))
        return PayloadTooLarge(str(error))

    def _localised(self, result: Result) -> Result:
        """An outcome with the name that the application knows."""
        local = self._workspace.local
        match result:
            case Published(topic=topic, reason=reason) if reason != Reason.REASON_SUCCESS:
                return replace(result, topic=local(topic) or topic)
            case ResolveFailed(topic=topic) | WillRefused(topic=topic):
                return replace(result, topic=local(topic) or topic)
            case Resolved(resolution=found):
                return replace(result, resolution=replace(found, topic=local(found.topic) or found.topic))
            case SubscriptionFailed(filter=filter):
                return replace(result, filter=local(filter) or filter)
        return result

    def _handle_result(self, result: Result) -> None:
        callback: Callback | None = None
        if self._workspace.name:
            result = self._localised(result)
        match result:
            case TakenOver():
                self.is_taken_over = True
                self._fail_with(of_takeover(self._client_id))
            case WillSet() | WillRefused():
                callback, self._on_will = self._on_will, None
            case Published():
                callback = self._publications.pop(result.sequence, None)
                error = None if callback is not None else of_publication(result)
                if error is not None:
                    self._failed += 1
                    self._failures.append(result)
                    logger.warning("nobody waited for it: %s", error)
            case Resolved() | ResolveFailed():
                callback = self._requests.pop(result.lookup_id, None)
            case Subscribed() | Unsubscribed():
                self._incomplete.discard(result.subscription)
                callback = self._requests.pop(result.subscription, None)
            case SubscriptionFailed():
                callback = self._requests.pop(result.subscription, None)
                inbox = self._inboxes.pop(result.subscription, None)
                self._group_members.discard(result.subscription)
                # Without a callback the subscription was complete before, and was refused when it was made
                # again.
                if inbox is not None and callback is None and not self.has_failed:
                    inbox.close(of_request(result, 0))
        if callback is not None:
            callback(result)


def _wall_clock() -> int:
    return time.time_ns() // 1000
