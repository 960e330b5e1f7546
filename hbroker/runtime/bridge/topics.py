"""Which topic of this network is which topic of the other broker.

As in mosquitto, the first entry that matches a message decides: no message crosses the bridge twice because
two entries match it.
"""

from __future__ import annotations

from collections.abc import Sequence

from hbroker._native import topic_matches
from hbroker.config import BridgeTopic, Direction

__all__ = ["TopicMap"]


class TopicMap:
    """The topics of a bridge."""

    def __init__(self, topics: Sequence[BridgeTopic]) -> None:
        self.inward = [topic for topic in topics if topic.direction is not Direction.OUT]
        """What comes from the other broker."""
        self.outward = [topic for topic in topics if topic.direction is not Direction.IN]
        """What goes there."""

    def local_topic(self, topic: str) -> str | None:
        """The topic here of a message of the other broker; None: it has none."""
        entry = next((each for each in self.inward if topic and topic_matches(each.remote, topic)), None)
        return None if entry is None else _moved(topic, entry.remote_prefix, entry.local_prefix)

    def remote_topic(self, topic: str) -> tuple[str, BridgeTopic] | None:
        """The topic at the other broker of a message of this network, and the entry that says so; None: it
        has none."""
        entry = next((each for each in self.outward if topic_matches(each.local, topic)), None)
        moved = None if entry is None else _moved(topic, entry.local_prefix, entry.remote_prefix)
        return None if entry is None or moved is None else (moved, entry)


def _moved(topic: str, before: str, after: str) -> str | None:
    """The topic with another prefix. `home/#` matches `home`, too, which does not begin with `home/`: then
    the prefixes count without their last `/`."""
    if topic.startswith(before):
        return after + topic[len(before) :] or None
    if topic + "/" == before and after.endswith("/"):
        return after.removesuffix("/") or None
    return None
