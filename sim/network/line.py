"""Publishers that share one narrow line to an owner: does a link fill it, and do links share it fairly?

The line has a bandwidth, a delay, and a queue of one bandwidth-delay product with tail drop. Every publisher
always has something to send, from a time that the seed determines. What the subscriber receives is measured.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from hbroker.config import NodeSettings

from .hosts import ClientHost, NodeHost
from .paths import CLEAR, ETHERNET, Bottleneck, Faults
from .world import Datagram, World

__all__ = ["LEAST_FILLED", "MOST_SHARE", "Line", "Shares", "measure"]

BANDWIDTH_BPS: Final = 20_000_000
ONE_WAY_US: Final = 20_000
JITTER_US: Final = 400
"""Less than a datagram takes on the line, so that no datagram overtakes another. Without it senders
synchronise, and one of them meets the full queue again and again (Floyd and Jacobson, "Traffic phase effects
in packet-switched gateways", 1991)."""
QUEUE_BYTES: Final = BANDWIDTH_BPS // 8 * 2 * ONE_WAY_US // 1_000_000
"""One bandwidth-delay product."""
LEAST_FILLED: Final = 0.85
"""The least share of the bandwidth that payloads must take."""
MOST_SHARE: Final = 0.6
"""The largest share of one of two senders."""

SECOND: Final = 1_000_000
START_SPREAD: Final = SECOND
"""Publishers begin within this time."""
CONVERGENCE: Final = {1: 2 * SECOND, 2: 8 * SECOND}
"""By number of publishers, the time after which they have found their shares: with each loss, which are
seconds apart, CUBIC closes about a third of the distance."""
MEASURING: Final = {1: 4 * SECOND, 2: 10 * SECOND}
BACKLOG: Final = 400_000
SIZES: Final = {0: 1_000, 1: 50_000, 2: 50_000}
"""The size of a message, by its QoS: one of QoS 0, which is not retransmitted, fits into a datagram."""


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of the line's bandwidth that each publisher's payloads took."""

    seed: int
    qos: int
    parts: tuple[float, ...]

    def is_filled(self) -> bool:
        """Whether the line was filled."""
        return LEAST_FILLED <= sum(self.parts) < 1.0

    def is_fair(self) -> bool:
        """Whether no publisher got much more than another."""
        return max(self.parts) <= MOST_SHARE * sum(self.parts) or len(self.parts) == 1

    def __str__(self) -> str:
        parts = " ".join(f"{part:.3f}" for part in self.parts)
        return f"seed {self.seed}, QoS {self.qos}: {parts}, together {sum(self.parts):.3f}"


class Line:
    """A root that owns all topics, one subscriber near it, and publishers beyond the line."""

    def __init__(self, seed: int, publishers: int, qos: int) -> None:
        self.seed = seed
        self.qos = qos
        self.world = World(seed)
        root = NodeHost(self.world, NodeSettings("root", "", self.world.new_address()))
        self.subscriber = ClientHost(self.world, root.address, "screen")
        self.subscriber.subscribe("camera/+", qos=qos)
        self.world.run_until(lambda: bool(self.subscriber.results))
        self.publishers = [
            ClientHost(self.world, root.address, f"camera-{number}") for number in range(publishers)
        ]
        self.begins = [self.world.now + self.world.random.randrange(START_SPREAD) for _ in self.publishers]
        self.forward_faults = Faults(
            delay_us=ONE_WAY_US,
            jitter_us=JITTER_US,
            mtu=ETHERNET,
            bottleneck=Bottleneck(BANDWIDTH_BPS, QUEUE_BYTES),
        )
        self.return_faults = Faults(delay_us=ONE_WAY_US, jitter_us=JITTER_US, mtu=ETHERNET)
        self.world.path = self._path

    def run(self, microseconds: int) -> None:
        """Lets time pass, while every publisher always has something to send."""
        end = self.world.now + microseconds
        while self.world.now < end:
            for number, begins in enumerate(self.begins):
                if begins <= self.world.now:
                    self._keep_busy(self.publishers[number], f"camera/{number}")
            self.world.run(20_000)

    def shares(self, microseconds: int) -> Shares:
        """Measures the shares of the publishers over this time."""
        self.subscriber.messages.clear()
        self.run(microseconds)
        received = Counter[str]()
        for message in self.subscriber.messages:
            received[message.topic] += len(message.payload)
        most = BANDWIDTH_BPS / 8 * microseconds / SECOND
        parts = (received[f"camera/{number}"] / most for number in range(len(self.publishers)))
        return Shares(self.seed, self.qos, tuple(parts))

    def _keep_busy(self, publisher: ClientHost, topic: str) -> None:
        publisher.catch_up()
        for _ in range((BACKLOG - publisher.engine.counters()["queued_bytes"]) // SIZES[self.qos]):
            publisher.engine.publish(topic, bytes(SIZES[self.qos]), self.qos)
        self.world.drive(publisher)

    def _path(self, datagram: Datagram) -> Faults:
        publisher_addresses = [publisher.address for publisher in self.publishers]
        if datagram.source in publisher_addresses:
            return self.forward_faults
        return self.return_faults if datagram.destination in publisher_addresses else CLEAR


def measure(seed: int, publishers: int, qos: int) -> Shares:
    """The shares of one publisher or two, when they have found them."""
    line = Line(seed, publishers, qos)
    line.run(CONVERGENCE[publishers])
    return line.shares(MEASURING[publishers])
