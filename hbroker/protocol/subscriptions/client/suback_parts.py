"""What a node has answered about its jurisdiction, in one SUBACK or in several parts (§6.1).

Outside of a session each part may be lost. The request is repeated until all parts have arrived. Parts of two
answers complete each other if their `list` is the same.
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
"""One empty object of each kind for all answers: most have no cuts, and arrive in one part."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The subtrees that a node holds, and its cuts as (subtree: epoch), as far as a filter touches them."""

    held: AbstractSet[str] = frozenset()
    cuts: Mapping[str, int] = field(default_factory=lambda: _NO_CUTS)

    def stands_for(self, subtree: str, epoch: int) -> bool:
        """Whether the answer stands for a delegation by which the node was named (§6.1): the node holds the
        subtree itself, or has delegated exactly this subtree under a higher epoch."""
        for around in reversed([*prefixes(subtree, depth(subtree))]):
            if around in self.held:
                return True
            if around in self.cuts:
                return around == subtree and self.cuts[around] > epoch
        return False

    def amended(self, change: Answer) -> Answer:
        """This answer with an unsolicited SUBACK, which lists all subtrees that are held now, and only the
        new cuts (§6.3)."""
        before = {subtree: epoch for subtree, epoch in self.cuts.items() if subtree not in change.held}
        return Answer(change.held, {**before, **change.cuts})


NO_ANSWER: Final = Answer()
"""Of a node that has not answered: one for all of them."""


@dataclass(slots=True)
class AnswerParts:
    """The parts of one node's answer. `answer`: the last complete answer."""

    list: int = 0
    missing: set[int] | None = None
    """None: no part of a split answer has arrived."""
    held: set[str] = field(default_factory=lambda: _NONE)
    cuts: dict[str, int] = field(default_factory=lambda: _NO_CUTS)
    answer: Answer = field(default_factory=lambda: NO_ANSWER)

    def take(self, suback: pb.SubAck) -> bool:
        """Adds one part. Returns whether the answer is complete. A part with another `list` begins a new
        answer."""
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
    """One object for all clients of a gateway, which get the same answer from a node."""
    return frozenset(held)
