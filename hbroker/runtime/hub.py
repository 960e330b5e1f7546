"""Between one client's control and those who wait for it, whatever they wait with.

Both shells, `hbroker.runtime.client` (asyncio) and `hbroker.sync` (threads), call it under their own rule
of one caller at a time. It hands each outcome to the callback that waits for it, and each message to the
inboxes that it is for, in batches. Messages are left in the core while an inbox that must not drop is full.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict

from hbroker._native import Config, Endpoint, NativeError, filter_is_valid, topic_is_valid
from hbroker.errors import Backpressure, InvalidTopic, NotConnected, PayloadTooLarge
from hbroker.protocol.client import ClientControl
from hbroker.protocol.outcome import (
    Outcome,
    Published,
    Resolved,
    ResolveFailed,
    Subscribed,
    SubscriptionFailed,
    Unsubscribed,
)
from hbroker.protocol.subscription import Options
from hbroker.runtime.failure import of_publication, of_request
from hbroker.runtime.inbox import Inbox
from hbroker.runtime.turns import BATCH, clock

if TYPE_CHECKING:
    from hbroker.protocol.packets import Address

__all__ = [
    "CLOSE_TIMEOUT",
    "LEAVE_TIMEOUT",
    "Callback",
    "Hub",
    "Properties",
    "Publication",
    "Receipt",
    "microseconds",
    "new_client_id",
    "new_endpoint",
]

Callback: TypeAlias = Callable[[Outcome | Exception], None]
"""Told the outcome; an exception: a defect of this program, because of which there may be none."""

CLOSE_TIMEOUT: Final = 2.0
"""Seconds that `close` waits for owners: one that is dead answers never."""

LEAVE_TIMEOUT: Final = 0.2
"""Seconds that `close` then gives the words of its leaving."""

MOST_FAILURES: Final = 100

logger = logging.getLogger(__name__)

_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a message. `reason`: `REASON_SUCCESS` or `REASON_NO_MATCHING_SUBSCRIBERS`; None: QoS
    0, which is only known to be queued. (`publisher`, `sequence`) is the message's id; the publisher is the
    client."""

    topic: str
    sequence: int
    qos: int
    reason: int | None


class Properties(TypedDict, total=False):
    """What may be said of a message besides topic and payload. `expiry_s`: seconds after which it is worth
    nothing. `ack_queued`: acknowledge as soon as it is queued for every subscriber (§7.3). The last five
    are MQTT 5's (§3.3.2.3)."""

    qos: int
    retain: bool
    expiry_s: int | None
    ack_queued: bool
    content_type: str
    payload_format: int | None
    response_topic: str
    correlation_data: bytes
    user_properties: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Publication:
    """A message to be published, with its `Properties`."""

    topic: str
    payload: bytes | str = b""
    qos: int = 0
    retain: bool = False
    expiry_s: int | None = None
    ack_queued: bool = False
    content_type: str = ""
    payload_format: int | None = None
    response_topic: str = ""
    correlation_data: bytes = b""
    user_properties: Sequence[tuple[str, str]] = ()


def microseconds(seconds: float) -> int:
    """Seconds, as the protocol counts them."""
    return round(seconds * _SECOND)


def new_endpoint(listen: Address) -> Endpoint:
    """An endpoint with the identity of a new run. Raises OSError where it cannot listen."""
    config = Config(
        node=False,
        session=_random_id(),
        incarnation=_random_id(),
        publisher=_random_id(),
        token_keys=[os.urandom(16)],
        seed=_random_id(),
    )
    return Endpoint(config, listen)


def new_client_id() -> str:
    """A name for a client that was given none."""
    return f"client-{os.urandom(4).hex()}"


def _random_id() -> int:
    return int.from_bytes(os.urandom(8), "big") or 1


class Hub:
    """One client's endpoint, control, waiting callers and inboxes. `on_room`: messages can be read again."""

    def __init__(
        self, endpoint: Endpoint, root: Address, client_id: str, on_room: Callable[[], None]
    ) -> None:
        self.endpoint = endpoint
        self.control = ClientControl(endpoint, Random(_random_id()), root, client_id)
        self._on_room = on_room
        self._requests: dict[int, Callback] = {}
        self._publications: dict[int, Callback] = {}
        self._inboxes: dict[int, Inbox] = {}
        self._failures: deque[Published] = deque(maxlen=MOST_FAILURES)
        self._failed = 0
        self._error: Exception | None = None
        self.has_failed = False
        """The endpoint can go on no more: whoever waits was told, and no more turns are to be taken."""

    # In

    def start(self, patience: int, callback: Callback) -> None:
        """Asks the root whether it serves."""
        self._requests[self.control.start(clock(), patience)] = callback

    def publish(self, message: Publication, callback: Callback | None = None) -> int:
        """Queues a message and returns its sequence number; at QoS 1 and 2 the callback is told what became
        of it.

        Raises Backpressure where queue or credit is full, InvalidTopic, PayloadTooLarge.
        """
        self.check()
        if not topic_is_valid(message.topic):
            raise InvalidTopic(f"not a topic name: {message.topic!r}")
        payload = message.payload
        try:
            sequence = self.endpoint.publish(
                message.topic,
                payload.encode() if isinstance(payload, str) else bytes(payload),
                message.qos,
                message.retain,
                published_at_us=_wall_clock(),
                expiry_s=message.expiry_s,
                ack_queued=message.ack_queued,
                content_type=message.content_type,
                payload_format=message.payload_format,
                response_topic=message.response_topic,
                correlation_data=message.correlation_data,
                user_properties=message.user_properties,
            )
        except NativeError as error:
            raise PayloadTooLarge(str(error)) from None
        if sequence is None:
            raise Backpressure(f"too much waits for the owner of {message.topic!r}")
        if message.qos and callback is not None:
            self._publications[sequence] = callback
        return sequence

    def resolve(self, topic: str, trace: bool, patience: int, callback: Callback) -> None:
        """Asks who owns a topic."""
        self.check()
        if not topic_is_valid(topic):
            raise InvalidTopic(f"not a topic name: {topic!r}")
        ticket = self.control.resolve(clock(), topic, trace=trace, patience=patience)
        self._requests[ticket] = callback

    def subscribe(
        self, filter: str, options: Options, inbox: Inbox, patience: int, callback: Callback
    ) -> int:
        """Subscribes; messages go to the inbox from now on. The callback is told once it is complete."""
        self.check()
        if not filter_is_valid(filter):
            raise InvalidTopic(f"not a topic filter: {filter!r}")
        subscription = self.control.subscribe(clock(), filter, options, patience=patience)
        self._requests[subscription] = callback
        self._inboxes[subscription] = inbox
        return subscription

    def unsubscribe(self, subscription: int, callback: Callback) -> None:
        """Ends a subscription; the callback is told when every owner knows."""
        self._inboxes.pop(subscription, None)
        self._requests[subscription] = callback
        self.control.unsubscribe(clock(), subscription)

    def abandon(self, sequence: int) -> None:
        """Nobody waits for this message any more."""
        self._publications.pop(sequence, None)

    def turn(self, now: int) -> bool:
        """Hands on what there is; returns whether there may be more."""
        while (outcome := self.control.poll_outcome()) is not None:
            self._hand_on(outcome)
        fault = self.endpoint.fault
        if fault is not None:
            self._break_off(fault)
        if self.has_failed or self.is_blocked:
            return False
        messages = self.endpoint.poll_messages(BATCH)
        for message in messages:
            inboxes = {id(inbox): inbox for inbox in map(self._inboxes.get, message.subscriptions) if inbox}
            for inbox in inboxes.values():
                inbox.put(message)
        return len(messages) == BATCH

    def fail(self, error: Exception) -> None:
        """Tells all who wait of `error`. Where a handler raised it, whose outcome it took is not known."""
        waiting = [*self._requests.values(), *self._publications.values()]
        self._requests.clear()
        self._publications.clear()
        for callback in waiting:
            callback(error)

    def close(self) -> None:
        """Leaves every session; whoever waits on an inbox is told. The endpoint stays open. Idempotent."""
        if self._error is not None:
            return
        self._error = NotConnected("the client is closed")
        for inbox in self._inboxes.values():
            inbox.close()
        self.control.leave()

    # Out

    @property
    def is_blocked(self) -> bool:
        """Whether an inbox that must not drop is full."""
        return any(inbox.is_blocking for inbox in self._inboxes.values())

    def counters(self) -> dict[str, int]:
        """The core's, and `publish_failed`."""
        return {**self.endpoint.counters(), "publish_failed": self._failed}

    @property
    def failures(self) -> tuple[Published, ...]:
        """The latest messages that failed while nobody waited for them."""
        return tuple(self._failures)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, or it has failed."""
        return self._error is not None

    def new_inbox(self, limit: int, qos: int, on_ready: Callable[[], None]) -> Inbox:
        """An inbox whose consumer is woken by `on_ready`."""
        return Inbox(limit, qos, on_ready, self._on_room)

    def check(self) -> None:
        """Raises NotConnected once the client is closed, or has failed."""
        if self._error is not None:
            raise self._error

    def _break_off(self, fault: str) -> None:
        """What was read can still be taken; then whoever takes is told."""
        self.has_failed = True
        if self._error is None:
            self._error = NotConnected(f"the client's socket failed: {fault}")
            logger.error("%s", self._error)
        for inbox in self._inboxes.values():
            inbox.close(self._error)
        self.fail(self._error)

    def _hand_on(self, outcome: Outcome) -> None:
        match outcome:
            case Published():
                callback = self._publications.pop(outcome.sequence, None)
                error = None if callback is not None else of_publication(outcome)
                if error is not None:
                    self._failed += 1
                    self._failures.append(outcome)
                    logger.warning("nobody waited for it: %s", error)
            case Resolved() | ResolveFailed():
                callback = self._requests.pop(outcome.ticket, None)
            case Subscribed() | Unsubscribed():
                callback = self._requests.pop(outcome.subscription, None)
            case SubscriptionFailed():
                callback = self._requests.pop(outcome.subscription, None)
                inbox = self._inboxes.pop(outcome.subscription, None)
                # With nobody waiting it was complete, and was refused when it was made again.
                if inbox is not None and callback is None:
                    inbox.close(of_request(outcome, 0))
        if callback is not None:
            callback(outcome)


def _wall_clock() -> int:
    return time.time_ns() // 1000
