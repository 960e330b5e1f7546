"""One node's part in one subscription (§6): has it answered, is it responsible, does it hold the
subscription?"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import auto
from typing import TYPE_CHECKING, Any, Final

from hbroker.config import format_address
from hbroker.protocol.packets import Address
from hbroker.protocol.resolution.requests import Request
from hbroker.protocol.state_machine import Machine, Symbol
from hbroker.protocol.subscriptions.client.suback_parts import Answer, AnswerParts

if TYPE_CHECKING:
    from hbroker.protocol.subscriptions.client.subscription import Subscription

_MOST_CUTS: Final = 1_000
NONE: Final[frozenset[Any]] = frozenset()
"""One for all sites: most have nothing in their sets."""

__all__ = ["NONE", "TRANSITIONS", "Event", "State", "SubscriptionOwner"]


class State(Symbol):
    """What the client waits for from this node."""

    EXPECTED = auto()
    """The answer to a SUBSCRIBE that another node passed on to it."""
    ASKED = auto()
    """The answer to a SUBSCRIBE of our own."""
    CLEAR = auto()
    """Nothing: no topic of its jurisdiction can match."""
    SUBSCRIBING = auto()
    """That it says, within the session, that the subscription is active."""
    ACTIVE = auto()
    """Nothing: it holds the subscription."""
    BACKING_OFF = auto()
    """The end of a pause, to make the subscription again."""


class Event(Symbol):
    """What happens to a node's part."""

    EXPECT = auto()
    """Another node says that this one has a subtree now."""
    SILENCE = auto()
    """No answer in time: ask it directly, or again."""
    RESPONSIBLE = auto()
    """It says that it is responsible."""
    NOT_RESPONSIBLE = auto()
    """It says that it is not, or not any more."""
    ACTIVATE = auto()
    """It says that the subscription is active."""
    RENEW = auto()
    """The application wants more of the subscription than the node was told."""
    DEFER = auto()
    """It asks to come back later."""
    LINK_DOWN = auto()
    """The session with it is gone, and the subscription with it."""
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
    """A node, as one subscription sees it.

    `cuts`: the delegations (subtree, epoch) by which it was named. `answer`: the last that it gave, for which
    of them it does not stand is `left_out` (§6.1). `question`: the request outside of a session. `parts`:
    which of its answer to that have come; `session_parts`: and within the session `link`. `pending`: the
    SUBSCRIBEs within that session that it has not answered, and in which listener's name each was. `served`:
    in whose names it has answered, until the subscription is complete. `failures`: pauses since it was last
    active.
    """

    subscription: Subscription
    node: str
    address: Address
    machine: Machine[State, Event]
    cuts: set[tuple[str, int]] = field(default_factory=set)
    answer: Answer = field(default_factory=Answer)
    left_out: AbstractSet[tuple[str, int]] = NONE
    question: Request[SubscriptionOwner] | None = None
    parts: AnswerParts = field(default_factory=AnswerParts)
    session_parts: AnswerParts = field(default_factory=AnswerParts)
    link: int | None = None
    pending: dict[int, int] = field(default_factory=dict)
    served: AbstractSet[int] = NONE
    failures: int = 0

    def add_cut(self, subtree: str, epoch: int) -> bool:
        """Remembers a delegation by which the node was named; False: it was known."""
        if (subtree, epoch) in self.cuts or len(self.cuts) >= _MOST_CUTS:
            return False
        self.cuts.add((subtree, epoch))
        if not self.answer.stands_for(subtree, epoch):
            self.left_out = {*self.left_out, (subtree, epoch)}
        return True

    def set_answer(self, answer: Answer) -> None:
        """Remembers its answer, which takes the place of the one before."""
        self.answer = answer
        self.left_out = {cut for cut in self.cuts if not answer.stands_for(*cut)} or NONE

    def begin_anew(self) -> None:
        """Forgets what it answered, and by what it was named."""
        self.cuts.clear()
        self.parts, self.session_parts = AnswerParts(), AnswerParts()
        self.set_answer(Answer())

    @property
    def text(self) -> str:
        """For messages to people."""
        address = format_address(self.address)
        return f"{self.node} ({address})" if self.node else address

    @property
    def state(self) -> State:
        """What the client waits for from this node."""
        return self.machine.state

    @property
    def is_awaited(self) -> bool:
        """Whether it has not said yet if it is responsible."""
        return self.machine.state in (State.EXPECTED, State.ASKED)

    @property
    def knows_cuts(self) -> bool:
        """Whether its cuts are known: nothing that it was asked is open. News are what has changed since."""
        return self.machine.state in (State.CLEAR, State.ACTIVE)

    @property
    def has_answered(self) -> bool:
        """Whether it said if it is responsible, for all that it was named for."""
        return not self.is_awaited and not self.left_out

    @property
    def is_settled(self) -> bool:
        """Whether nothing is awaited from it."""
        return self.machine.state in (State.CLEAR, State.ACTIVE) and not self.left_out
