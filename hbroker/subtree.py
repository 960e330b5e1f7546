"""Subtrees: topic prefixes by whole levels. The empty one is the whole hierarchy (docs/protocol.md §1)."""

from __future__ import annotations

from collections.abc import Iterator

from hbroker._native import topic_is_valid

__all__ = ["depth", "is_grantable", "is_within", "prefixes"]


def is_within(topic: str, subtree: str) -> bool:
    """Whether a topic or subtree lies in `subtree`, or is equal to it."""
    return not subtree or topic == subtree or topic.startswith(subtree + "/")


def is_grantable(subtree: str) -> bool:
    """Whether a node other than the root may own this subtree: a topic name without empty levels."""
    return topic_is_valid(subtree) and all(subtree.split("/"))


def depth(subtree: str) -> int:
    """The number of levels of a subtree; 0 for the whole hierarchy."""
    return subtree.count("/") + 1 if subtree else 0


def prefixes(topic: str, most: int) -> Iterator[str]:
    """The subtrees that contain `topic`, from the whole hierarchy down to the one of `most` levels."""
    yield ""
    end = -1
    for _ in range(most):
        end = topic.find("/", end + 1)
        if end < 0:
            if topic:
                yield topic
            return
        yield topic[:end]
