"""Subscribers that are slower than those who publish to them, over real sockets (docs/guarantees.md): one
that goes on loses nothing, and one that does not holds nobody up.

`--long` has as many publishers as the outside review had that found the losses.
"""

from __future__ import annotations

import asyncio
import time

import pytest

import hbroker
from hbroker.protocol.packets import Reason
from tests.product.node import Node, node_up
from tests.waiting import eventually

EACH = 1_000
"""Messages of one publisher, all at once. Twenty publishers have more under way than a queue holds and a
subscriber has unanswered."""
BATCH, PAUSE_S = 50, 0.01
"""What the subscriber reads, and its pause after that: some 5,000 a second at most."""
WITHIN_S = 240
STARVED_S = 1.5
"""Whoever reads nothing for so long, for want of a CPU, may be taken for one that does not go on."""
QUIET_S = 15
TASKS, DRIPS = 8, 50
"""So many messages of each task, one after the other, beside a subscriber that handles one each 1.8 s: it
would hold them up for minutes."""


class SlowReader:
    """Reads a subscription at its pace."""

    def __init__(self, messages: hbroker.Subscription) -> None:
        self.got = 0
        self.longest_gap_s = 0.0
        self._last = time.monotonic()
        self._task = asyncio.create_task(self._read(messages))

    async def _read(self, messages: hbroker.Subscription) -> None:
        async for _ in messages:
            self.got += 1
            if self.got % BATCH == 0:
                await asyncio.sleep(PAUSE_S)  # its pace is what is tested
            now = time.monotonic()
            self.longest_gap_s, self._last = max(self.longest_gap_s, now - self._last), now

    @property
    def is_quiet(self) -> bool:
        """Whether nothing comes any more."""
        return time.monotonic() - self._last > QUIET_S

    def stop(self) -> None:
        self._task.cancel()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("qos", [1, 2])
def test_one_that_goes_on_loses_nothing_whoever_publishes_to_it(
    qos: int, workers: int, is_long: bool
) -> None:
    publishers = 64 if is_long else 20

    async def scenario(node: Node) -> None:
        async with (
            hbroker.connect(node.root, timeout=60) as client,
            client.subscribe("a/#", qos=qos) as messages,
        ):
            reader = SlowReader(messages)
            others = [await hbroker.connect(node.root, timeout=60) for _ in range(publishers)]
            batch = [("a/b", b"%d" % number) for number in range(EACH)]
            answers = await asyncio.gather(
                *(other.publish_many(batch, qos=qos, timeout=WITHIN_S) for other in others)
            )
            assert not any(answers), "nothing was refused"
            expected = publishers * EACH
            await eventually(lambda: reader.got == expected or reader.is_quiet, "all came", WITHIN_S)
            reader.stop()
            lost = (await asyncio.to_thread(node.drops)).get("queue_full", 0)
            assert reader.got + lost == expected, "what was acknowledged came, or is counted"
            assert lost == 0 or reader.longest_gap_s > STARVED_S
            for other in others:
                await other.close()

    with node_up("--workers", str(workers)) as node:
        asyncio.run(scenario(node))


def test_one_that_trickles_holds_nobody_up() -> None:
    async def scenario(node: Node) -> None:
        async with (
            hbroker.connect(node.root, timeout=60) as publisher,
            hbroker.connect(node.root, timeout=60) as good,
            good.subscribe("d/#", qos=1) as wanted,
            hbroker.connect(node.root, receive_messages=1, acknowledge="handled", timeout=60) as bad,
            bad.subscribe("d/#", qos=1) as trickling,
        ):
            trickle = asyncio.create_task(handle_slowly(trickling))
            publishing = asyncio.gather(*(publish(publisher, task) for task in range(TASKS)))
            came = {message.payload for _ in range(TASKS * DRIPS) if (message := await wanted.next(60))}
            assert len(came) == TASKS * DRIPS
            await asyncio.wait_for(publishing, 60)
            trickle.cancel()
            assert "queue_full" not in node.drops(), "what it has not had yet waits"

    async def publish(publisher: hbroker.Client, task: int) -> None:
        for number in range(DRIPS):
            receipt = await publisher.publish("d/x", b"%d %d" % (task, number), qos=1, timeout=60)
            assert receipt.reason == Reason.REASON_SUCCESS

    async def handle_slowly(messages: hbroker.Subscription) -> None:
        async for _ in messages:
            await asyncio.sleep(1.8)  # less than the two seconds in which one has to be answered

    with node_up() as node:
        asyncio.run(scenario(node))
