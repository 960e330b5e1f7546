"""`publish_many` of both clients, over a fake endpoint: order, back pressure, failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import count

import pytest

from hbroker import sync
from hbroker.errors import InvalidTopic, NotConnected, Refused, Unreachable
from hbroker.protocol.results import Published
from hbroker.runtime.client.async_client import connect
from tests.runtime.client.client_fakes import PATIENCE_S, FakeEndpoint
from tests.waiting import eventually, until

MANY = [(f"t/{number}", str(number)) for number in range(1_000)]
TOPICS = [topic for topic, _ in MANY]


async def test_publish_many_queues_the_messages_in_order(endpoint: FakeEndpoint) -> None:
    async with connect("127.0.0.1") as client:
        await client.publish_many(iter(MANY))
        await client.publish_many([])
        assert endpoint.published == TOPICS
    with sync.connect("127.0.0.1:7700") as blocking:
        blocking.publish_many(message for message in MANY)
    assert endpoint.published == TOPICS * 2


async def test_publish_many_waits_for_room(endpoint: FakeEndpoint) -> None:
    async with connect("127.0.0.1") as client:
        endpoint.room = 300
        waits = asyncio.create_task(client.publish_many(MANY))
        await eventually(lambda: endpoint.refused > 1, "it asked for room again", PATIENCE_S)
        assert endpoint.published == TOPICS[:300]
        endpoint.room = 1_000
        await waits
        assert endpoint.published == TOPICS


async def test_publish_many_at_qos_1_returns_when_the_last_message_is_acknowledged(
    endpoint: FakeEndpoint,
) -> None:
    async with connect("127.0.0.1") as client:
        waits = asyncio.create_task(client.publish_many(MANY, qos=1))
        await endpoint.await_published(len(MANY))
        for sequence in range(len(MANY), 1, -1):
            endpoint.give_event(Published(sequence, TOPICS[sequence - 1], 0))
        await eventually(
            lambda: len(client._dispatcher._publications) == 1, "all but one are answered", PATIENCE_S
        )
        assert not waits.done()
        endpoint.give_event(Published(1, TOPICS[0], 1))
        await waits
        assert client.failures == ()


async def test_publish_many_raises_at_the_first_failure_without_waiting_for_the_others(
    endpoint: FakeEndpoint,
) -> None:
    async with connect("127.0.0.1") as client:
        waits = asyncio.create_task(client.publish_many(MANY[:3], qos=2))
        await endpoint.await_published(3)
        endpoint.give_event(Published(2, "t/1", 5))
        with pytest.raises(Refused, match="t/1"):
            await waits
        assert client._dispatcher._publications == {}
        with pytest.raises(Unreachable, match=r"t/2.*within 0\.01 s"):
            await client.publish_many(MANY[:3], qos=1, timeout=0.01)
        assert client._dispatcher._publications == {}


async def test_publish_many_requests_no_more_messages_after_a_failure(endpoint: FakeEndpoint) -> None:
    asked: list[int] = []

    def endless() -> Iterator[tuple[str, str]]:
        asked.clear()
        for number in count():
            if number == 1_000:
                endpoint.give_event(Published(len(endpoint.published), "t/x", 5))
            asked.append(number)
            yield "t/x", str(number)

    async with connect("127.0.0.1") as client:
        with pytest.raises(Refused, match="t/x"):
            await client.publish_many(endless(), qos=1)
    assert len(asked) > 1_000
    with sync.connect("127.0.0.1:7700") as blocking, pytest.raises(Refused, match="t/x"):
        blocking.publish_many(endless(), qos=1)
    assert len(asked) > 1_000


async def test_publish_many_publishes_the_messages_before_an_invalid_topic_and_none_after_it(
    endpoint: FakeEndpoint,
) -> None:
    wrong = [*MANY[:400], ("t/#", "wrong"), *MANY[400:]]

    async with connect("127.0.0.1") as client:
        with pytest.raises(InvalidTopic, match="t/#"):
            await client.publish_many(wrong)
        assert endpoint.published == TOPICS[:400]
    with sync.connect("127.0.0.1:7700") as blocking, pytest.raises(InvalidTopic, match="t/#"):
        blocking.publish_many(wrong)


def test_the_blocking_publish_many_waits_and_fails_in_the_same_way(endpoint: FakeEndpoint) -> None:
    with sync.connect("127.0.0.1:7700") as client:
        with pytest.raises(Unreachable, match=r"t/999.*within 0\.02 s"):
            client.publish_many(MANY, qos=1, timeout=0.02)
        endpoint.room = 10
        with pytest.raises(Unreachable, match="t/10"):
            client.publish_many(MANY, timeout=0.02)
        endpoint.room = 1_000_000
        first = len(endpoint.published) + 1
        waits = threading.Thread(target=client.publish_many, args=(MANY,), kwargs={"qos": 1})
        waits.start()
        last = first + len(MANY) - 1
        until(lambda: len(endpoint.published) >= last, "all are published", PATIENCE_S)
        for number, topic in enumerate(TOPICS):
            endpoint.give_event(Published(first + number, topic, 0))
        waits.join(PATIENCE_S)
        assert not waits.is_alive()
        assert client._dispatcher._publications == {}
    with pytest.raises(NotConnected):
        client.publish_many(MANY)
