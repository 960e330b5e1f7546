"""One gateway publishes for all of its clients over one link. Clients that publish to a slow subscriber do
not delay the others (docs/guarantees.md, "Slow subscribers")."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from paho.mqtt.client import MQTTMessageInfo

import hbroker
from tests.interop.lines import Place
from tests.interop.peer import Peer, connected
from tests.product.network import network_of
from tests.product.slow_reader import SlowReader
from tests.waiting import eventually

FLOODERS, MESSAGES_OF_EACH = 6, 1_500
"""More messages than the subscriber's queue accepts before it is congested, and more than may be in flight
on a link."""
LEAST_ACKNOWLEDGED = 5_500
"""When this many queued messages are acknowledged, more than half of a queue waits (docs/protocol.md, §9)."""
PAUSE_S = 0.025
"""The slow subscriber reads about forty messages a second. So it is not stalled, and publishers wait for
it."""
STARVED_S = 1.0
"""A subscriber that reads nothing for this long, for lack of CPU time, may count as stalled."""
OTHERS = 2_000
MEANWHILE = 1_000
"""The greatest number of messages that the slow subscriber reads until the other client's messages are
acknowledged. If they waited behind the flood, it would have read twice as many."""
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
    """The address of a root, the port of its gateway, and whether the gateway acknowledges queued
    messages."""
    with network_of(FILE % request.param, tmp_path) as (network, root):
        [gateway] = network.state()["gateways"]
        yield root, int(gateway["listeners"][0].rpartition(":")[2]), request.param == "queued"


def numbers_of(reader: SlowReader, flooder: int) -> list[int]:
    """The numbers of the messages of one flooding publisher that were read, without duplicates."""
    pairs = (payload.split() for payload in reader.got)
    return list(dict.fromkeys(int(number) for name, number in pairs if int(name) == flooder))


def test_publishers_that_flood_a_slow_subscriber_do_not_delay_another_client_of_their_gateway(
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
            reader = SlowReader(messages, PAUSE_S)
            sent = [
                publish_many(
                    flooder, "slow", [b"%d %d" % (name, number) for number in range(MESSAGES_OF_EACH)]
                )
                for name, flooder in enumerate(flooders)
            ]
            flood = [info for infos in sent for info in infos]
            least = LEAST_ACKNOWLEDGED if is_queued else 0
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
            expected = list(range(MESSAGES_OF_EACH))
            await eventually(
                lambda: all(len(numbers_of(reader, name)) == MESSAGES_OF_EACH for name in range(FLOODERS)),
                "all came",
                PATIENCE_S,
            )
            assert all(numbers_of(reader, name) == expected for name in range(FLOODERS)), "in order"
            reader.stop()

    with ExitStack() as stack:
        places = [Place("127.0.0.1", port, f"client-{number}", 5) for number in range(FLOODERS + 1)]
        asyncio.run(scenario([stack.enter_context(connected(place)) for place in places]))


def publish_many(peer: Peer, topic: str, payloads: list[bytes]) -> list[MQTTMessageInfo]:
    return [peer.client.publish(topic, payload, qos=1) for payload in payloads]


def answered(infos: list[MQTTMessageInfo]) -> int:
    return sum(info.is_published() for info in infos)
