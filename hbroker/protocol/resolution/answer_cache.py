"""Recent answers of owners, shared by several clients behind one address (§5.2).

Thousands of clients of one process may start at the same moment, and most want topics of the same few owners.
An answer names a zone, not a topic, and another client would get the same one. So before each try a client
looks here for an answer that another client has received. No client waits for another's answer. But if a node
is slow, no client repeats a request that was answered to another client. So the work of a slow node does not
grow with its slowness.

An answer is given to other clients for a short time, and once to each client. If a client asks again, it has
found the answer wrong (its link ended, or the owner refused: §5.3). Then the answer is removed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.protocol.packets import Address
from hbroker.protocol.timers import SECOND
from hbroker.subtree import depth, is_within, prefixes

__all__ = ["FRESH", "Answer", "AnswerCache", "covers"]

FRESH: Final = 5 * SECOND
"""Microseconds for which an answer is given to other clients. A later client asks for itself. So it does not
first wait on a link to an owner that died before it came."""

_MOST_ANSWERS: Final = 1_024


class Answer(NamedTuple):
    """A zone, its owner, and a token for the owner (§4.2). `until`: when the zone expires, in
    microseconds."""

    zone: pb.Zone
    owner: Address
    token: bytes
    until: int


class AnswerCache:
    """The latest answer for each of at most `most` scopes. 0: the cache stays empty."""

    def __init__(self, most: int = _MOST_ANSWERS) -> None:
        self._most = most
        self._by_scope: ExpiringCache[str, Answer] = ExpiringCache(most)
        self._deepest = 0

    def keep(self, now: int, answer: Answer) -> None:
        """Stores an answer that a client received."""
        if self._most:
            self._by_scope.put(answer.zone.scope, answer, min(now + FRESH, answer.until))
            self._deepest = max(self._deepest, depth(answer.zone.scope))

    def find(self, now: int, topic: str) -> Answer | None:
        """The answer with the longest scope around a topic, if it names the topic's owner; else None."""
        if not len(self._by_scope):
            return None
        around = (self._by_scope.get(now, scope) for scope in prefixes(topic, self._deepest))
        nearest = None
        for answer in around:
            nearest = answer or nearest
        return nearest if nearest is not None and covers(nearest.zone, topic) else None

    def discard(self, answer: Answer) -> None:
        """Removes an answer that was wrong. Idempotent."""
        self._by_scope.drop(answer.zone.scope, answer)


def covers(zone: pb.Zone, topic: str) -> bool:
    """Whether the zone's owner owns the topic: it lies in the scope, and below no cut (§5.3)."""
    return is_within(topic, zone.scope) and not any(is_within(topic, cut.subtree) for cut in zone.cuts)
