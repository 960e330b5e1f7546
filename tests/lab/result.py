"""What must hold of the journals, whatever happened between the publishers and the subscribers."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable

from tests.lab.journal import Received
from tests.lab.network import Publisher

__all__ = ["longest_gap_s", "missing", "require_order", "require_single"]


def missing(publisher: Publisher, received: Iterable[Received], until: int | None = None) -> list[int]:
    """The numbers of messages that were acknowledged to the publisher (until a time) and did not arrive."""
    arrived = {entry.number for entry in received if entry.source == publisher.host}
    acknowledged = publisher.acknowledged().values()
    return sorted(
        entry.number
        for entry in acknowledged
        if entry.number not in arrived and (until is None or entry.at <= until)
    )


def require_order(received: Iterable[Received]) -> None:
    """Of one publisher and topic, messages came in the order in which they were published; what came again
    may have come later."""
    latest: dict[tuple[int, str], int] = defaultdict(lambda: -1)
    seen: set[tuple[int, int]] = set()
    for entry in received:
        if (entry.publisher, entry.sequence) in seen:
            continue
        seen.add((entry.publisher, entry.sequence))
        chain = entry.publisher, entry.topic
        assert entry.sequence > latest[chain], f"{entry} came after {latest[chain]}"
        latest[chain] = entry.sequence


def require_single(received: Iterable[Received]) -> None:
    """Nothing came twice."""
    times = Counter((entry.source, entry.number) for entry in received)
    doubled = {message: count for message, count in times.items() if count > 1}
    assert not doubled, f"{len(doubled)} came more than once, as {sorted(doubled)[:5]}"


def longest_gap_s(received: Iterable[Received]) -> float:
    """The longest time between two arrivals."""
    times = sorted(entry.at for entry in received)
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0) / 1e6
