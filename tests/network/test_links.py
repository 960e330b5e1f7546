"""Links fill a path, share it, and find out what it carries (§3.2, §3.4)."""

from __future__ import annotations

from collections import Counter

import pytest

from hbroker.sim.network import CLEAR, Bottleneck, ClientHost, Datagram, Faults, World
from hbroker.sim.network.world import Address
from tests.network.networks import Tree

BANDWIDTH_BPS = 20_000_000
ONE_WAY_US = 20_000
QUEUE_BYTES = BANDWIDTH_BPS // 8 * 2 * ONE_WAY_US // 1_000_000
"""One bandwidth-delay product."""
SECOND = 1_000_000
BACKLOG = 400_000
SIZES = {0: 1_000, 1: 50_000, 2: 50_000}
"""Of a message, by its QoS: one that is not repeated fits a datagram."""


class Line:
    """Publishers, one subscriber, and between the publishers and the owner a narrow line."""

    def __init__(self, seed: int, publishers: int, qos: int) -> None:
        self.tree = Tree.grow(seed)
        self.world: World = self.tree.world
        self.world.watch = None
        self.qos = qos
        self.bottleneck = Bottleneck(BANDWIDTH_BPS, QUEUE_BYTES)
        self.subscriber = self.tree.client("screen")
        self.subscriber.subscribe("camera/+", qos=qos)
        self.world.run_until(lambda: bool(self.subscriber.outcomes))
        self.publishers = [self.tree.client(f"camera-{number}") for number in range(publishers)]
        self.there = Faults(delay_us=ONE_WAY_US, bottleneck=self.bottleneck)
        self.back = Faults(delay_us=ONE_WAY_US)
        self.world.path = self._path

    def run(self, microseconds: int) -> None:
        """Lets time pass, while every publisher always has something to send."""
        end = self.world.now + microseconds
        while self.world.now < end:
            for number, publisher in enumerate(self.publishers):
                self._keep_busy(publisher, f"camera/{number}")
            self.world.run(20_000)

    def shares(self, microseconds: int) -> list[float]:
        """What share of the line's bandwidth each publisher's payloads took that the subscriber got."""
        self.subscriber.messages.clear()
        self.run(microseconds)
        received = Counter[str]()
        for message in self.subscriber.messages:
            received[message.topic] += len(message.payload)
        most = BANDWIDTH_BPS / 8 * microseconds / SECOND
        return [received[f"camera/{number}"] / most for number in range(len(self.publishers))]

    def _keep_busy(self, publisher: ClientHost, topic: str) -> None:
        for _ in range((BACKLOG - publisher.engine.counters()["queued_bytes"]) // SIZES[self.qos]):
            publisher.engine.publish(topic, bytes(SIZES[self.qos]), self.qos)
        self.world.settle(publisher)

    def _path(self, datagram: Datagram) -> Faults:
        far = [publisher.address for publisher in self.publishers]
        if datagram.source in far:
            return self.there
        return self.back if datagram.destination in far else CLEAR


@pytest.mark.parametrize("qos", [0, 1])
def test_one_sender_fills_a_path(qos: int) -> None:
    line = Line(1, 1, qos)
    line.run(2 * SECOND)
    (share,) = line.shares(8 * SECOND)
    assert 0.85 <= share < 1.0


@pytest.mark.parametrize("qos", [0, 1])
def test_two_senders_share_a_path(qos: int) -> None:
    line = Line(2, 2, qos)
    line.run(2 * SECOND)
    shares = line.shares(10 * SECOND)
    assert 0.85 <= sum(shares) < 1.0
    assert 0.4 <= shares[0] / sum(shares) <= 0.6, shares


def test_a_late_sender_gets_its_share_of_a_path() -> None:
    line = Line(2, 2, qos=0)
    late = line.publishers.pop()
    line.run(2 * SECOND)
    line.publishers.append(late)
    line.run(4 * SECOND)
    shares = line.shares(12 * SECOND)
    assert 0.85 <= sum(shares) < 1.0
    assert 0.4 <= shares[0] / sum(shares) <= 0.6, shares


class Ruler:
    """A publisher and a subscriber at one owner, over paths that carry datagrams of so many bytes."""

    def __init__(self, seed: int, mtu: int) -> None:
        self.tree = Tree.grow(seed)
        self.world: World = self.tree.world
        self.narrow(mtu)
        self.subscriber, self.publisher = self.tree.client(), self.tree.client()
        self.subscriber.subscribe("camera", qos=1)
        self.world.run_until(lambda: bool(self.subscriber.outcomes))
        self.largest: Counter[Address] = Counter()
        self.world.watch = self._watch

    def narrow(self, mtu: int) -> None:
        self.world.faults = Faults(delay_us=5_000, mtu=mtu)

    def send(self, count: int) -> int:
        """Publishes small messages at once, waits until all have arrived; how long that took."""
        start, there = self.world.now, len(self.subscriber.messages)
        for _ in range(count):
            self.publisher.engine.publish("camera", bytes(100), 1)
        self.world.settle(self.publisher)
        self.world.run_until(lambda: len(self.subscriber.messages) == there + count)
        self.world.run(SECOND)
        return self.world.now - SECOND - start

    def bundles(self, count: int) -> dict[Address, int]:
        """The largest datagram with messages that each host sends when so many go through."""
        self.largest.clear()
        self.send(count)
        return {host.address: self.largest[host.address] for host in (self.publisher, self.tree.root)}

    def _watch(self, datagram: Datagram) -> None:
        if "publish" in datagram.kinds():
            self.largest[datagram.source] = max(self.largest[datagram.source], len(datagram.data))


@pytest.mark.parametrize("mtu", [1_200, 1_280, 1_400, 1_452, 9_000])
def test_links_find_what_a_path_carries(mtu: int) -> None:
    """Messages of 100 bytes leave bundles up to 150 bytes short of what fits."""
    ruler = Ruler(1, mtu)
    for _ in range(20):
        ruler.send(100)
    most = min(mtu, 1_452)
    for size in ruler.bundles(200).values():
        assert most - 16 - 150 <= size <= most


def test_a_path_that_begins_to_drop_large_datagrams_is_survived() -> None:
    ruler = Ruler(2, 1_452)
    for _ in range(10):
        ruler.send(100)
    assert min(ruler.bundles(200).values()) > 1_200
    ruler.narrow(1_300)
    assert all(ruler.send(500) < 5 * SECOND for _ in range(6))
    assert max(ruler.bundles(200).values()) <= 1_200
