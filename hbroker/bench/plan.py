"""What is to be measured, as the command line says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hbroker.bench.layouts import LAYOUTS, Shape

__all__ = ["LEAST_PAYLOAD", "MOST_PAYLOAD", "TRANSPORTS", "Address", "Plan", "Transport"]

Address: TypeAlias = tuple[str, int]
Transport: TypeAlias = Literal["hbroker", "mqtt", "mqtt5", "nats"]

TRANSPORTS: Final = ("hbroker", "mqtt", "mqtt5", "nats")
LEAST_PAYLOAD: Final = 16
"""What names and times a message."""
MOST_PAYLOAD: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """A load and how long it lasts.

    `clients`: pairs, or those at the many's side. `window`: messages under way in all; None: open loop.
    `rate`: messages a second in all; None: as fast as they may. Times are seconds.
    """

    layout: str
    clients: int
    transport: Transport
    qos: int
    payload: int
    window: int | None
    rate: float | None
    warm_up: float
    duration: float

    @property
    def shape(self) -> Shape:
        """Who publishes to whom."""
        return LAYOUTS[self.layout].of(self.clients)

    @property
    def window_each(self) -> int | None:
        """Of one publisher."""
        return None if self.window is None else max(1, self.window // len(self.shape.publishers))

    def __str__(self) -> str:
        layout = LAYOUTS[self.layout].text.format(f"{self.clients:,}")
        pace = "as fast as it goes" if self.rate is None else f"{self.rate:,.0f} messages/s"
        loop = "open loop" if self.window is None else f"{self.window:,} under way"
        return f"{layout} over {self.transport}, QoS {self.qos}, {self.payload} bytes, {pace}, {loop}"
