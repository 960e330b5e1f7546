"""What is to be measured, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hbroker.bench.layouts import LAYOUTS, Group, Shape

__all__ = ["Address", "Plan", "Transport", "Trust"]

Address: TypeAlias = tuple[str, int]
Transport: TypeAlias = Literal["hbroker", "mqtt", "mqtt5", "nats"]
Trust: TypeAlias = tuple[bytes, str]
"""For TLS: the authorities, as PEM, and the host that the broker's certificate must name."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A load and how long it lasts.

    `clients`: pairs, or those at the many's side. `depth`: of a tree; 0: it is none. `topics`: of each
    publisher, in turn. `window`: messages under way in all; None: open loop. `rate`: messages a second in
    all; None: as fast as they may. `polls`: the load never sleeps. `sockets`: that subscribers share; None:
    each has its own. Times are seconds.
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
        """Who publishes to whom."""
        return LAYOUTS[self.layout].of(self.clients, self.depth)

    def pace_of(self, group: Group) -> tuple[int, int | None, float | None]:
        """As the core takes it: how many publishers, the window of each, and the rate of all together."""
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
