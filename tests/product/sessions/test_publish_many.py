"""`publish_many` to a real node: every message arrives, once and in order."""

from __future__ import annotations

import asyncio
from itertools import count, islice

import pytest

import hbroker
from hbroker.errors import PayloadTooLarge
from tests.product.node import node_up

MESSAGES = 20_000


@pytest.mark.parametrize("qos", [1, 2])
def test_all_messages_of_publish_many_arrive_once_and_in_order(qos: int) -> None:
    async def scenario(root: str) -> None:
        async with (
            hbroker.connect(root, timeout=60) as client,
            hbroker.connect(root, timeout=60) as other,
            other.subscribe("many/+/state", qos=qos) as messages,
        ):
            numbers = ((f"many/{number % 7}/state", b"%d" % number) for number in count())
            publishing = asyncio.create_task(client.publish_many(islice(numbers, MESSAGES), qos=qos))
            got = [
                int(message.payload)
                for message in [await messages.next(30) for _ in range(MESSAGES)]
                if message
            ]
            await publishing
            for rest in range(7):
                assert [number for number in got if number % 7 == rest] == list(range(rest, MESSAGES, 7))

    with node_up() as node:
        asyncio.run(scenario(node.root))


def test_large_and_small_messages_are_published_together_and_one_that_is_too_large_raises() -> None:
    payloads = [b"a", b"b" * 3_000_000, b"", b"c" * 100_000]

    with node_up() as node, hbroker.sync.connect(node.root, max_message_bytes=4_000_000) as client:
        with client.subscribe("large", qos=1) as messages:
            client.publish_many([("large", payload) for payload in payloads], qos=1)
            for payload in payloads:
                message = messages.next(30)
                assert message is not None
                assert message.payload == payload
        with pytest.raises(PayloadTooLarge):
            client.publish_many([("large", b"d"), ("large", b"e" * 4_000_001)], qos=1)
