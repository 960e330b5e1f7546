"""What a node has said of its jurisdiction, in one SUBACK or in several parts (§6.1).

Outside of a session any part may be lost: the request is repeated until every part has come. Parts of two
answers complete each other as long as both give the same lists, which `list` tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.subtree import depth, prefixes

__all__ = ["Answer", "AnswerParts"]

MOST_ANSWER_PARTS: Final = 10_000
_NONE: Final[set[str]] = set()
_NO_CUTS: Final[dict[str, int]] = {}
"""One of each for all answers: most have no cuts, and come in one part."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The subtrees that a node holds, and its cuts, as (subtree: epoch), as far as a filter touches them."""

    held: AbstractSet[str] = frozenset()
    cuts: Mapping[str, int] = field(default_factory=lambda: _NO_CUTS)

    def stands_for(self, subtree: str, epoch: int) -> bool:
        """Whether it says what became of a delegation by which the node was named (§6.1): the node holds the
        subtree, cut out of nothing by itself, or has delegated it since."""
        for around in reversed([*prefixes(subtree, depth(subtree))]):
            if around in self.held:
                return True
            if around in self.cuts:
                return around == subtree and self.cuts[around] > epoch
        return False

    def amended(self, change: Answer) -> Answer:
        """What holds after news: they name all that is held now, what came last by itself, and of the cuts
        the new ones alone."""
        before = {subtree: epoch for subtree, epoch in self.cuts.items() if subtree not in change.held}
        return Answer(change.held, {**before, **change.cuts})


_NO_ANSWER: Final = Answer()


@dataclass(slots=True)
class AnswerParts:
    """Which parts of one node's answer have come. `answer`: the last that was whole."""

    list: int = 0
    missing: set[int] | None = None
    """None: nothing has come in parts."""
    held: set[str] = field(default_factory=lambda: _NONE)
    cuts: dict[str, int] = field(default_factory=lambda: _NO_CUTS)
    answer: Answer = field(default_factory=lambda: _NO_ANSWER)

    def take(self, suback: pb.SubAck) -> bool:
        """Takes note of one part. True: the answer is whole. A part of another list begins anew."""
        if suback.parts > MOST_ANSWER_PARTS:
            return False
        held, cuts = suback.held, {cut.subtree: cut.epoch for cut in suback.passed_to}
        if not suback.parts:
            self.missing = None
            self.answer = Answer(_shared(tuple(held)), cuts or _NO_CUTS)
            return True
        if self.missing is None or self.list != suback.list:
            self.list, self.missing = suback.list, set(range(suback.parts))
            self.held, self.cuts = set(), {}
        self.missing.discard(suback.part)
        self.held.update(held)
        self.cuts.update(cuts)
        if not self.missing:
            self.answer = Answer(self.held, self.cuts)
        return not self.missing


@lru_cache(maxsize=1_024)
def _shared(held: tuple[str, ...]) -> frozenset[str]:
    """Nodes say the same to thousands of a gateway's clients."""
    return frozenset(held)
