"""Carries messages over two connections in both directions, until one of them fails.

Inward, messages that wait together are published together, in order. The bridge acknowledges them to the
other broker when they are distributed (docs/protocol.md §7.3). Outward, a window bounds the messages
that the other broker has not acknowledged. Each is acknowledged to its owner when its answer comes.

No Local holds on both sides, so what the bridge brings to one side does not come back from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from hbroker.config import BridgeTopic
from hbroker.errors import InvalidTopic, PayloadTooLarge, Refused
from hbroker.properties import Properties
from hbroker.protocol.packets import Reason
from hbroker.runtime.bridge.remote import FAILURE, QUOTA_EXCEEDED, Incoming, Remote, RemoteFailed
from hbroker.runtime.bridge.topics import TopicMap
from hbroker.runtime.logs import EventLog

if TYPE_CHECKING:
    from hbroker._native import Message
    from hbroker.runtime.client.async_client import Client
    from hbroker.runtime.client.subscription import Subscription

__all__ = ["Counters", "Transfer", "subscribe_locally"]

PUBLISH_TIMEOUT_S: Final = 30.0
"""How long a message may wait for its owner. Then the bridge connects again, and the broker sends the message
again."""
_MOST_ERRORS: Final = 10
"""Messages that are refused and logged over one connection. All are counted."""
_LATER: Final = frozenset({Reason.REASON_NOT_AUTHORIZED, Reason.REASON_QUOTA_EXCEEDED})
"""Refusals that are over once the bridge has another token, or there is room again."""


@dataclass(slots=True)
class Counters:
    """What a bridge has carried since it started. `refused_in`, `refused_out`: messages that the receiving
    side does not take, and that are discarded. `dropped_in`, `dropped_out`: messages of QoS 0 that found no
    room. `unmatched_in`: messages for which no topic of the bridge is meant."""

    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    refused_in: int = 0
    refused_out: int = 0
    dropped_in: int = 0
    dropped_out: int = 0
    unmatched_in: int = 0
    connections: int = 0


async def subscribe_locally(
    local: Client, topics: Sequence[BridgeTopic], handling: Callable[[BridgeTopic], int]
) -> list[tuple[BridgeTopic, Subscription]]:
    """Subscribes to what goes out. `handling`: when retained messages are sent (MQTT 5 §3.8.3.1). Raises what
    `Client.subscribe` raises."""
    return [
        (
            topic,
            await local.subscribe(
                topic.local,
                qos=topic.qos,
                no_local=True,
                retain_as_published=True,
                retain_handling=handling(topic),
            ),
        )
        for topic in topics
    ]


class Transfer:
    """Carries messages between two connections of one bridge."""

    def __init__(
        self,
        topics: TopicMap,
        local: Client,
        remote: Remote,
        subscriptions: Sequence[tuple[BridgeTopic, Subscription]],
        counters: Counters,
    ) -> None:
        self._topics = topics
        self._local = local
        self._remote = remote
        self._subscriptions = subscriptions
        self._counters = counters
        self._log = EventLog("bridge")
        self._logged = 0
        self._window = asyncio.Semaphore(remote.window)
        self._must_end: asyncio.Future[RemoteFailed] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Carries messages until a connection fails. Raises RemoteFailed or HBrokerError."""
        tasks = [asyncio.create_task(self._carry_in())]
        tasks += [asyncio.create_task(self._carry_out(*each)) for each in self._subscriptions]
        ends = (self._remote.failed, self._must_end)
        awaited: set[asyncio.Future[Any]] = {*tasks, *ends}
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            done = [task for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._count_dropped()
        for future in ends:
            if future.done():
                raise future.result()
        for task in done:
            await task
        raise RemoteFailed("a subscription has ended")

    # Inward

    async def _carry_in(self) -> None:
        while True:
            messages = await self._remote.next_messages(self._remote.window)
            for properties, group in _groups(messages):
                await self._publish_here(group, properties)

    async def _publish_here(self, messages: list[Incoming], properties: Properties) -> None:
        """Publishes messages with equal properties, in order."""
        wanted: list[tuple[Incoming, str]] = []
        for message in messages:
            found = self._topics.local_topic(message.topic)
            if found is None:
                self._counters.unmatched_in += 1
                self._remote.acknowledge(message)
            else:
                wanted.append((message, found))
        try:
            await self._local.publish_many(
                [(topic, message.payload) for message, topic in wanted],
                timeout=PUBLISH_TIMEOUT_S,
                **properties,
            )
        except (InvalidTopic, PayloadTooLarge, Refused, ValueError):
            # One of them is refused. The others must arrive, some of them perhaps again.
            for message, topic in wanted:
                await self._publish_one(message, topic, properties)
            return
        for message, _ in wanted:
            self._finish_in(message)

    async def _publish_one(self, message: Incoming, topic: str, properties: Properties) -> None:
        try:
            await self._local.publish(topic, message.payload, timeout=PUBLISH_TIMEOUT_S, **properties)
        except (InvalidTopic, PayloadTooLarge, Refused, ValueError) as error:
            if isinstance(error, Refused) and error.reason in _LATER:
                raise
            self._counters.refused_in += 1
            self._note_refused("in", message.topic, str(error))
            self._remote.acknowledge(message)
            return
        self._finish_in(message)

    def _finish_in(self, message: Incoming) -> None:
        self._counters.messages_in += 1
        self._counters.bytes_in += len(message.payload)
        self._remote.acknowledge(message)

    # Outward

    async def _carry_out(self, entry: BridgeTopic, subscription: Subscription) -> None:
        async for message in subscription:
            found = self._topics.remote_topic(message.topic)
            if found is None or found[1] is not entry:
                self._local.acknowledge(message)  # Another subscription carries it, or it has no topic there.
                continue
            await self._window.acquire()
            try:
                published = self._remote.publish(found[0], message, min(message.qos, entry.qos))
            except ValueError as error:
                self._finish_out(message, str(error))
                continue
            published.add_done_callback(partial(self._on_answer, message))

    def _on_answer(self, message: Message, answer: asyncio.Future[int]) -> None:
        if answer.cancelled():
            return
        code = answer.result()
        if code == QUOTA_EXCEEDED:
            if not self._must_end.done():
                self._must_end.set_result(RemoteFailed("the broker's quota is exceeded"))
            return
        self._finish_out(message, f"reason code 0x{code:02X}" if code >= FAILURE else "")

    def _finish_out(self, message: Message, refused: str) -> None:
        """Acknowledges a message to its owner. `refused`: why the broker did not take it; empty: it did."""
        self._window.release()
        if refused:
            self._counters.refused_out += 1
            self._note_refused("out", message.topic, refused)
        else:
            self._counters.messages_out += 1
            self._counters.bytes_out += len(message.payload)
        self._local.acknowledge(message)

    def _note_refused(self, direction: str, topic: str, why: str) -> None:
        self._logged += 1
        if self._logged <= _MOST_ERRORS:
            self._log.warning("message_refused", direction=direction, topic=topic, why=why)

    def _count_dropped(self) -> None:
        self._counters.dropped_in += self._remote.dropped
        self._counters.dropped_out += sum(subscription.dropped for _, subscription in self._subscriptions)


def _groups(messages: Iterable[Incoming]) -> Iterator[tuple[Properties, list[Incoming]]]:
    """The messages in order, those together that follow each other and have equal properties."""
    for properties, group in groupby(messages, lambda message: message.properties):
        yield properties, list(group)
