"""One gateway publishes for all of its clients over one link: those that publish to somebody slow do not hold
up the others (docs/guarantees.md, "Slow subscribers").
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from paho.mqtt.client import MQTTMessageInfo

import hbroker
from tests.interop.lines import Place
from tests.interop.peer import Peer, connected
from tests.product.network import network_up
from tests.waiting import eventually

FLOODERS, EACH = 6, 1_500
"""More than the subscriber's queue takes before it is crowded, and more than may be under way on a link."""
CROWDED = 5_500
"""Where so many are acknowledged that are queued, more than half of a queue waits (docs/protocol.md, §9)."""
PAUSE_S = 0.025
"""Some forty messages a second: it goes on, so it is waited for."""
STARVED_S = 1.0
"""Whoever reads nothing for so long, for want of a CPU, may be taken for one that does not go on."""
OTHERS = 2_000
MEANWHILE = 1_000
"""What the slow one may have read until the other client's messages are answered: held back with the flood,
they would be when it has read twice as many."""
PATIENCE_S = 120.0
FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:0"}
gateways:
  - name: one
    workers: 1
    listeners: [{address: "127.0.0.1:0", acknowledge: %s}]
"""


@pytest.fixture(params=["queued", "distributed"])
def network(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int, bool]]:
    """The address of a root, the port of its gateway, and whether that acknowledges what is queued."""
    file = tmp_path / "house.yaml"
    file.write_text(FILE % request.param)
    with network_up(file, tmp_path / "state") as (network, root):
        [gateway] = network.state()["gateways"]
        yield root, int(gateway["listeners"][0].rpartition(":")[2]), request.param == "queued"


class SlowReader:
    """Reads a subscription, one message after the other with a pause, until it is `hurried`."""

    def __init__(self, messages: hbroker.Subscription) -> None:
        self.got: list[bytes] = []
        self.is_hurried = False
        self.longest_gap_s = 0.0
        self._last = time.monotonic()
        self._task = asyncio.create_task(self._read(messages))

    async def _read(self, messages: hbroker.Subscription) -> None:
        async for message in messages:
            self.got.append(message.payload)
            now = time.monotonic()
            self.longest_gap_s, self._last = max(self.longest_gap_s, now - self._last), now
            if not self.is_hurried:
                await asyncio.sleep(PAUSE_S)  # its pace is what is tested

    def firsts_of(self, flooder: int) -> list[int]:
        """The numbers of what came of one that floods, without repetitions."""
        pairs = (payload.split() for payload in self.got)
        return list(dict.fromkeys(int(number) for name, number in pairs if int(name) == flooder))

    def stop(self) -> None:
        self._task.cancel()


def test_one_that_floods_a_slow_subscriber_holds_up_no_other_client_of_its_gateway(
    network: tuple[str, int, bool],
) -> None:
    root, port, is_queued = network

    async def scenario(peers: list[Peer]) -> None:
        *flooders, other = peers
        async with (
            hbroker.connect(root, timeout=60, receive_messages=16, acknowledge="handled") as client,
            client.subscribe("slow", qos=1) as messages,
            hbroker.connect(root, timeout=60) as quick,
            quick.subscribe("quick", qos=1),
        ):
            reader = SlowReader(messages)
            sent = [
                publish_many(flooder, "slow", [b"%d %d" % (name, number) for number in range(EACH)])
                for name, flooder in enumerate(flooders)
            ]
            flood = [info for infos in sent for info in infos]
            least = CROWDED if is_queued else 0
            await eventually(
                lambda: answered(flood) >= least and len(reader.got) > 20, "the flood is there", PATIENCE_S
            )
            before = len(reader.got)
            others = publish_many(other, "quick", [b"x"] * OTHERS)
            await eventually(lambda: answered(others) == OTHERS, "the other one's are answered", PATIENCE_S)
            assert len(reader.got) - before < MEANWHILE, "it did not wait for the slow one"
            is_waiting = answered(flood) < len(flood)
            assert is_waiting or reader.longest_gap_s > STARVED_S, "the flood does"
            reader.is_hurried = True
            await eventually(lambda: answered(flood) == len(flood), "all are answered", PATIENCE_S)
            expected = list(range(EACH))
            await eventually(
                lambda: all(len(reader.firsts_of(name)) == EACH for name in range(FLOODERS)),
                "all came",
                PATIENCE_S,
            )
            assert all(reader.firsts_of(name) == expected for name in range(FLOODERS)), "in order"
            reader.stop()

    with ExitStack() as stack:
        places = [Place("127.0.0.1", port, f"client-{number}", 5) for number in range(FLOODERS + 1)]
        asyncio.run(scenario([stack.enter_context(connected(place)) for place in places]))


def publish_many(peer: Peer, topic: str, payloads: list[bytes]) -> list[MQTTMessageInfo]:
    return [peer.client.publish(topic, payload, qos=1) for payload in payloads]


def answered(infos: list[MQTTMessageInfo]) -> int:
    return sum(info.is_published() for info in infos)
