"""What a load is: who publishes, who receives, how well it must arrive, and how fast it comes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """A load. `pairs`: topics, each with one publisher and so many `subscribers`. `rate`: messages a second
    in all; None: closed loop, with `window` messages under way. `cpus`: of the load. `topics`: of each
    publisher, in turn."""

    pairs: int
    qos: int
    window: int
    rate: int | None
    cpus: frozenset[int]
    subscribers: int = 1
    topics: int = 1
