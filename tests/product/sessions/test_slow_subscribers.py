"""Subscribers that are slower than their publishers, over real sockets (docs/guarantees.md). A slow
subscriber that is not stalled loses nothing, and a stalled one delays nobody.

`--long` uses as many publishers as the external review that found the losses.
"""

from __future__ import annotations

import asyncio
import time

import pytest

import hbroker
from hbroker.protocol.packets import Reason
from tests.product.node import Node, node_up
from tests.product.slow_reader import SlowReader
from tests.waiting import eventually

EACH = 1_000
"""Messages of one publisher, all at once. Twenty publishers have more in flight than a queue and a
subscriber's credit hold."""
BATCH, PAUSE_S = 50, 0.01
"""How many messages the subscriber reads, and its pause after that: about 5,000 messages per second at
most."""
WITHIN_S = 240
STARVED_S = 1.5
"""A subscriber that reads nothing for this long, for lack of CPU time, may count as stalled."""
QUIET_S = 15
TASKS, MESSAGES_OF_EACH = 8, 50
"""Each task publishes this many messages, one after the other, beside a subscriber that handles one in 1.8
s. If the publishers waited for it, that would take minutes."""


def is_quiet(reader: SlowReader) -> bool:
    """Whether no more messages arrive."""
    return time.monotonic() - reader.last_at > QUIET_S


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_slow_subscriber_that_is_not_stalled_loses_nothing(qos: int, workers: int, is_long: bool) -> None:
    publishers = 64 if is_long else 20

    async def scenario(node: Node) -> None:
        async with (
            hbroker.connect(node.root, timeout=60) as client,
            client.subscribe("a/#", qos=qos) as messages,
        ):
            reader = SlowReader(messages, PAUSE_S, BATCH)
            others = [await hbroker.connect(node.root, timeout=60) for _ in range(publishers)]
            batch = [("a/b", b"%d" % number) for number in range(EACH)]
            answers = await asyncio.gather(
                *(other.publish_many(batch, qos=qos, timeout=WITHIN_S) for other in others)
            )
            assert not any(answers), "nothing was refused"
            expected = publishers * EACH
            await eventually(lambda: len(reader.got) == expected or is_quiet(reader), "all came", WITHIN_S)
            reader.stop()
            lost = (await asyncio.to_thread(node.drops)).get("queue_full", 0)
            assert len(reader.got) + lost == expected, "what was acknowledged came, or is counted"
            assert lost == 0 or reader.longest_gap_s > STARVED_S
            for other in others:
                await other.close()

    with node_up("--workers", str(workers)) as node:
        asyncio.run(scenario(node))


def test_a_stalling_subscriber_does_not_delay_publishers() -> None:
    async def scenario(node: Node) -> None:
        async with (
            hbroker.connect(node.root, timeout=60) as publisher,
            hbroker.connect(node.root, timeout=60) as good,
            good.subscribe("d/#", qos=1) as wanted,
            hbroker.connect(node.root, receive_messages=1, acknowledge="handled", timeout=60) as bad,
            bad.subscribe("d/#", qos=1) as slow_messages,
        ):
            slow_handling = asyncio.create_task(handle_slowly(slow_messages))
            publishing = asyncio.gather(*(publish(publisher, task) for task in range(TASKS)))
            came = {
                message.payload for _ in range(TASKS * MESSAGES_OF_EACH) if (message := await wanted.next(60))
            }
            assert len(came) == TASKS * MESSAGES_OF_EACH
            await asyncio.wait_for(publishing, 60)
            slow_handling.cancel()
            assert "queue_full" not in node.drops(), "what it has not had yet waits"

    async def publish(publisher: hbroker.Client, task: int) -> None:
        for number in range(MESSAGES_OF_EACH):
            receipt = await publisher.publish("d/x", b"%d %d" % (task, number), qos=1, timeout=60)
            assert receipt.reason == Reason.REASON_SUCCESS

    async def handle_slowly(messages: hbroker.Subscription) -> None:
        async for _ in messages:
            await asyncio.sleep(
                1.8
            )  # less than the two seconds after which an unacknowledged message counts as stalled

    with node_up() as node:
        asyncio.run(scenario(node))
