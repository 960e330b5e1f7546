"""The load to measure, from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hbroker.bench.layouts import LAYOUTS, Group, Shape

__all__ = ["Address", "Plan", "Transport", "Trust"]

Address: TypeAlias = tuple[str, int]
Transport: TypeAlias = Literal["hbroker", "mqtt", "mqtt5", "nats"]
Trust: TypeAlias = tuple[bytes, str]
"""For TLS: the authorities as PEM, and the host name in the broker's certificate."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A load, and how long it lasts. Times are seconds.

    `clients`: pairs, or the clients on the side with many. `depth`: of a tree; 0: no tree. `topics`: of each
    publisher, in rotation. `window`: messages in flight in all; None: an open loop. `rate`: messages a second
    in all; None: no limit. `polls`: the load never sleeps. `sockets`: the number that subscribers share;
    None: each has its own.
    """

    layout: str
    clients: int
    depth: int
    topics: int
    transport: Transport
    qos: int
    payload: int
    window: int | None
    rate: float | None
    warm_up: float
    duration: float
    polls: bool = False
    sockets: int | None = None

    @property
    def shape(self) -> Shape:
        """The layout with this number of clients and this depth."""
        return LAYOUTS[self.layout].of(self.clients, self.depth)

    def pace_of(self, group: Group) -> tuple[int, int | None, float | None]:
        """For the core: the number of publishers, the window of each, and the rate of all together."""
        shape = self.shape
        window = self.window if group.is_windowed else None
        rate = self.rate if group.is_paced else None
        return (
            group.publishers,
            None if window is None else max(1, window // shape.windowed),
            None if rate is None else rate * group.publishers / shape.paced,
        )

    def __str__(self) -> str:
        layout = LAYOUTS[self.layout].text.format(clients=f"{self.clients:,}", depth=self.depth)
        pace = "as fast as it goes" if self.rate is None else f"{self.rate:,.0f} messages/s"
        loop = "open loop" if self.window is None else f"{self.window:,} under way"
        topics = "" if self.topics == 1 else f", {self.topics:,} topics in turn"
        sockets = "" if self.sockets is None else f" ({self.sockets:,} sockets)"
        what = f"QoS {self.qos}, {self.payload} bytes{topics}"
        return f"{layout} over {self.transport}{sockets}, {what}, {pace}, {loop}"
