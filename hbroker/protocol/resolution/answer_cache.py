"""What owners answered lately, to any of several clients behind one address (§5.2).

Thousands of members of one process begin at one moment, and most want topics of the same few owners. An
answer names a zone, not a topic, and whoever asks now would hear the same: so before each try of its question
a client looks here for what another was told meanwhile. No client waits for another's answer. But where a
node is slow, none repeats a question that another had answered, and the node's work does not grow with its
slowness.

An answer is handed on for a short while, and to each client once. One that asks again has found it wrong
(its link ended, or the owner refused: §5.3), and so it is handed on no more.
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
"""How long an answer is handed on. A client that comes later asks for itself: so it never waits for a node
that died before it came, as it would in a link."""

_MOST_ANSWERS: Final = 1_024


class Answer(NamedTuple):
    """A zone, its owner with a token for it (§4.2), and until when the owner wants it to be believed."""

    zone: pb.Zone
    owner: Address
    token: bytes
    until: int


class AnswerCache:
    """The latest answer for each of at most `most` scopes. 0: it keeps none."""

    def __init__(self, most: int = _MOST_ANSWERS) -> None:
        self._most = most
        self._by_scope: ExpiringCache[str, Answer] = ExpiringCache(most)
        self._deepest = 0

    def keep(self, now: int, answer: Answer) -> None:
        """Somebody was told this."""
        if self._most:
            self._by_scope.put(answer.zone.scope, answer, min(now + FRESH, answer.until))
            self._deepest = max(self._deepest, depth(answer.zone.scope))

    def find(self, now: int, topic: str) -> Answer | None:
        """The nearest answer around a topic, if it names the topic's owner."""
        if not len(self._by_scope):
            return None
        around = (self._by_scope.get(now, scope) for scope in prefixes(topic, self._deepest))
        nearest = None
        for answer in around:
            nearest = answer or nearest
        return nearest if nearest is not None and covers(nearest.zone, topic) else None

    def discard(self, answer: Answer) -> None:
        """It was wrong. Idempotent."""
        self._by_scope.drop(answer.zone.scope, answer)


def covers(zone: pb.Zone, topic: str) -> bool:
    """Whether the zone says that its owner owns the topic (§5.3)."""
    return is_within(topic, zone.scope) and not any(is_within(topic, cut.subtree) for cut in zone.cuts)
