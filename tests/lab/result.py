"""Checks of the journals that must hold whatever happened between publishers and subscribers."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from tests.lab.journal import Received
from tests.lab.network import Publisher, Subscriber, until

__all__ = ["await_all", "longest_gap_s", "missing", "require_order", "require_single"]


def missing(publisher: Publisher, received: Iterable[Received], until: int | None = None) -> list[int]:
    """The numbers of messages that were acknowledged (before the time `until`) and not received."""
    arrived = {entry.number for entry in received if entry.source == publisher.host}
    acknowledged = publisher.acknowledged().values()
    return sorted(
        entry.number
        for entry in acknowledged
        if entry.number not in arrived and (until is None or entry.at <= until)
    )


def await_all(subscriber: Subscriber, publishers: Collection[Publisher]) -> None:
    """Waits until the subscriber has received every acknowledged message.

    An owner does not delay PUBACK for a subscriber that has not acknowledged for two seconds (§7.3). Such a
    subscriber receives the queued messages later.
    """

    def lacks_none() -> bool:
        received = subscriber.received()
        return not any(missing(publisher, received) for publisher in publishers)

    until(lacks_none, f"all acknowledged messages have come to {subscriber.host}")


def require_order(received: Iterable[Received]) -> None:
    """Checks that the messages of each publisher and topic were received in the order of publication.
    Repeated messages may be later."""
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
    """Checks that no message was received twice."""
    times = Counter((entry.source, entry.number) for entry in received)
    doubled = {message: count for message, count in times.items() if count > 1}
    assert not doubled, f"{len(doubled)} came more than once, as {sorted(doubled)[:5]}"


def longest_gap_s(received: Iterable[Received]) -> float:
    """The longest time between two received messages."""
    times = sorted(entry.at for entry in received)
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0) / 1e6
