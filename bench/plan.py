"""A load: its publishers, subscribers, QoS and rate."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """A load.

    `pairs`: topics, each with this number of `publishers` and `subscribers`. There are several publishers, or
    several subscribers, but not both. `rate`: messages a second in all; None: a closed loop, with `window`
    messages in flight. `cpus`: of the load. `topics`: of each publisher, in rotation. `often`: a factor of
    the number of rounds, because they differ much.
    """

    pairs: int
    qos: int
    window: int
    rate: int | None
    cpus: frozenset[int]
    subscribers: int = 1
    topics: int = 1
    publishers: int = 1
    often: int = 1

    @property
    def layout(self) -> tuple[str, int]:
        """Its layout in `hbroker bench`, and the number of clients."""
        if self.publishers > 1:
            return "fanin", self.publishers
        return ("pairs", self.pairs) if self.subscribers == 1 else ("fanout", self.subscribers)
