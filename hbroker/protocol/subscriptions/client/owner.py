"""One node's part in one subscription (§6): whether it has answered, is responsible, and has the
subscription.

What a node answers about its jurisdiction comes in one SUBACK or in several parts (§6.1). Outside of a
session each part may be lost. The request is repeated until all parts have arrived. Parts of two answers
complete each other if their `list` is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import auto
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from hbroker._proto import packet_pb2 as pb
from hbroker.addresses import format_address
from hbroker.protocol.packets import Address
from hbroker.protocol.resolution.requests import Request
from hbroker.protocol.state_machine import Machine, Symbol
from hbroker.subtree import depth, prefixes

if TYPE_CHECKING:
    from hbroker.protocol.subscriptions.client.subscription import Subscription

__all__ = ["NONE", "TRANSITIONS", "Answer", "AnswerParts", "Event", "State", "SubscriptionOwner"]

MOST_ANSWER_PARTS: Final = 10_000
_NONE: Final[set[str]] = set()
_NO_CUTS: Final[dict[str, int]] = {}
"""One empty object of each kind for all answers: most have no cuts, and arrive in one part."""

_MOST_CUTS: Final = 1_000
NONE: Final[frozenset[Any]] = frozenset()
"""One empty set for all owners, most of which have empty sets."""


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


class State(Symbol):
    """What the client waits for from this node."""

    EXPECTED = auto()
    """For the answer to a SUBSCRIBE that another node forwarded to it."""
    ASKED = auto()
    """For the answer to a SUBSCRIBE that this client sent to it."""
    CLEAR = auto()
    """For nothing: no topic of its jurisdiction can match."""
    SUBSCRIBING = auto()
    """For the SUBACK within the session that says `active`."""
    ACTIVE = auto()
    """For nothing: it has the subscription."""
    BACKING_OFF = auto()
    """For the end of a pause, to make the subscription again."""


class Event(Symbol):
    """What happens to a node's part."""

    EXPECT = auto()
    """Another node says that this one has a subtree now."""
    SILENCE = auto()
    """It did not answer in time: the client asks it directly, or again."""
    RESPONSIBLE = auto()
    """It says that it is responsible."""
    NOT_RESPONSIBLE = auto()
    """It says that it is not, or not any more."""
    ACTIVATE = auto()
    """It says that the subscription is active."""
    RENEW = auto()
    """The options of the subscription changed."""
    DEFER = auto()
    """It asks the client to come back later."""
    LINK_DOWN = auto()
    """The link to it ended, and with it the subscription."""
    RESUME = auto()
    """The pause is over."""


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.EXPECTED, Event.SILENCE): State.ASKED,
    (State.EXPECTED, Event.RESPONSIBLE): State.SUBSCRIBING,
    (State.EXPECTED, Event.NOT_RESPONSIBLE): State.CLEAR,
    (State.EXPECTED, Event.ACTIVATE): State.ACTIVE,
    (State.ASKED, Event.SILENCE): State.ASKED,
    (State.ASKED, Event.RESPONSIBLE): State.SUBSCRIBING,
    (State.ASKED, Event.NOT_RESPONSIBLE): State.CLEAR,
    (State.ASKED, Event.ACTIVATE): State.ACTIVE,
    (State.CLEAR, Event.EXPECT): State.EXPECTED,
    (State.CLEAR, Event.SILENCE): State.ASKED,
    (State.CLEAR, Event.RESPONSIBLE): State.SUBSCRIBING,
    (State.CLEAR, Event.NOT_RESPONSIBLE): State.CLEAR,
    (State.CLEAR, Event.ACTIVATE): State.ACTIVE,
    (State.SUBSCRIBING, Event.RESPONSIBLE): State.SUBSCRIBING,
    (State.SUBSCRIBING, Event.NOT_RESPONSIBLE): State.CLEAR,
    (State.SUBSCRIBING, Event.ACTIVATE): State.ACTIVE,
    (State.SUBSCRIBING, Event.RENEW): State.SUBSCRIBING,
    (State.SUBSCRIBING, Event.DEFER): State.BACKING_OFF,
    (State.SUBSCRIBING, Event.LINK_DOWN): State.BACKING_OFF,
    (State.ACTIVE, Event.RESPONSIBLE): State.ACTIVE,
    (State.ACTIVE, Event.NOT_RESPONSIBLE): State.CLEAR,
    (State.ACTIVE, Event.ACTIVATE): State.ACTIVE,
    (State.ACTIVE, Event.RENEW): State.SUBSCRIBING,
    (State.ACTIVE, Event.LINK_DOWN): State.BACKING_OFF,
    (State.BACKING_OFF, Event.RESPONSIBLE): State.BACKING_OFF,
    (State.BACKING_OFF, Event.NOT_RESPONSIBLE): State.CLEAR,
    (State.BACKING_OFF, Event.RESUME): State.SUBSCRIBING,
}


@dataclass(slots=True, eq=False)
class SubscriptionOwner:
    """A node, as one subscription knows it.

    - `cuts`: the delegations (subtree, epoch) by which other nodes named it.
    - `announced`: those of them that an owner announced whose cuts were known, by an unsolicited SUBACK.
    - `answer`: its last answer, amended by the unsolicited SUBACKs since. `solicited`: without these.
    - `left_out`: the delegations for which its answer does not stand (§6.1, §6.2).
    - `question`: the request outside of a session.
    - `parts`: the parts of its answer to that; `session_parts`: those within the session.
    - `link`: the link of the session.
    - `pending`: the SUBSCRIBEs within the session that wait for an answer, with the listener of each.
    - `served`: the listeners for which it has answered, until the subscription is complete.
    - `failures`: pauses since it was last active.
    """

    subscription: Subscription
    node: str
    address: Address
    machine: Machine[State, Event]
    cuts: set[tuple[str, int]] = field(default_factory=set)
    announced: AbstractSet[tuple[str, int]] = NONE
    answer: Answer = field(default_factory=lambda: NO_ANSWER)
    solicited: Answer = field(default_factory=lambda: NO_ANSWER)
    left_out: AbstractSet[tuple[str, int]] = NONE
    question: Request[SubscriptionOwner] | None = None
    parts: AnswerParts = field(default_factory=AnswerParts)
    session_parts: AnswerParts = field(default_factory=AnswerParts)
    link: int | None = None
    pending: dict[int, int] = field(default_factory=dict)
    served: AbstractSet[int] = NONE
    failures: int = 0

    def add_cut(self, cut: tuple[str, int], *, is_announced: bool = False) -> bool:
        """Adds a delegation by which the node was named. False: it was known."""
        if cut in self.cuts or len(self.cuts) >= _MOST_CUTS:
            return False
        self.cuts.add(cut)
        if is_announced:
            self.announced = {*self.announced, cut}
        if not self._stands_for(cut):
            self.left_out = {*self.left_out, cut}
        return True

    def set_answer(self, answer: Answer) -> None:
        """Replaces its last answer, by one to a SUBSCRIBE."""
        self.solicited = answer
        self._set_answer(answer)

    def amend_answer(self, change: Answer) -> None:
        """Amends its last answer by an unsolicited SUBACK (§6.3)."""
        self._set_answer(self.answer.amended(change))

    def begin_anew(self) -> None:
        """Forgets its answer, and the delegations by which it was named."""
        self.cuts.clear()
        self.announced = NONE
        self.parts, self.session_parts = AnswerParts(), AnswerParts()
        self.set_answer(NO_ANSWER)

    def _set_answer(self, answer: Answer) -> None:
        self.answer = answer
        self.left_out = {cut for cut in self.cuts if not self._stands_for(cut)} or NONE

    def _stands_for(self, cut: tuple[str, int]) -> bool:
        """Whether its answer stands for a delegation, and the cuts in the delegated subtree are known (§6.2):
        from the owner before, or from an answer of this node to a SUBSCRIBE."""
        is_known = cut in self.announced or self.solicited.stands_for(*cut)
        return is_known and self.answer.stands_for(*cut)

    @property
    def text(self) -> str:
        """The node for error messages."""
        address = format_address(self.address)
        return f"{self.node} ({address})" if self.node else address

    @property
    def state(self) -> State:
        """What the client waits for from this node."""
        return self.machine.state

    @property
    def is_awaited(self) -> bool:
        """Whether it has not answered yet whether it is responsible."""
        return self.machine.state in (State.EXPECTED, State.ASKED)

    @property
    def knows_cuts(self) -> bool:
        """Whether its cuts are known, because no request to it is open. Unsolicited SUBACKs name only
        changes."""
        return self.machine.state in (State.CLEAR, State.ACTIVE)

    @property
    def withholds_cuts(self) -> bool:
        """Whether only an unsolicited SUBACK stands for a delegation: cuts may have moved along, and only an
        answer to a SUBSCRIBE names these (§6.2)."""
        return any(self.answer.stands_for(*cut) for cut in self.left_out)

    @property
    def has_answered(self) -> bool:
        """Whether its answer stands for all delegations by which it was named."""
        return not self.is_awaited and not self.left_out

    @property
    def is_settled(self) -> bool:
        """Whether nothing is awaited from it."""
        return self.machine.state in (State.CLEAR, State.ACTIVE) and not self.left_out
