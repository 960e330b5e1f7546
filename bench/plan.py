"""What a load is: who publishes, who receives, how well it must arrive, and how fast it comes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A load. `pairs`: topics, each with so many `publishers` and `subscribers`, of which there are many at
    one end alone. `rate`: messages a second in all; None: closed loop, with `window` messages under way.
    `cpus`: of the load. `topics`: of each publisher, in turn. `often`: it gets so many times the rounds that
    are asked for, because they differ much."""

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
        """As `hbroker bench` calls it, and how many clients it has."""
        if self.publishers > 1:
            return "fanin", self.publishers
        return ("pairs", self.pairs) if self.subscribers == 1 else ("fanout", self.subscribers)
