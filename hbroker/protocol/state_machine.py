"""State machines as data: a table of (state, event) -> state, walked one event at a time.

The table is the specification: the diagrams in the docs are drawn from it, and an event that it does not list
for the present state is a defect of the code that raised it, never of the network. So a caller first asks
`accepts` about whatever came from outside, and drops what the machine does not expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

__all__ = ["ImpossibleTransition", "Machine", "Symbol", "step"]

StateT = TypeVar("StateT", bound=Enum)
EventT = TypeVar("EventT", bound=Enum)


class Symbol(Enum):
    """A state or an event of a machine that walks often: each is one object, hashed as one. (A member of a
    plain Enum hashes its name, in Python.)"""

    __hash__ = object.__hash__


class ImpossibleTransition(AssertionError):
    """The table lists no transition for this event in this state."""


def step(transitions: Mapping[tuple[StateT, EventT], StateT], state: StateT, event: EventT) -> StateT:
    """The state that follows, for who keeps the state himself. Raises ImpossibleTransition."""
    try:
        return transitions[state, event]
    except KeyError:
        raise ImpossibleTransition(f"{event} in {state}") from None


class Machine(Generic[StateT, EventT]):
    """One walk through a transition table."""

    __slots__ = ("_state", "_transitions")

    def __init__(self, transitions: Mapping[tuple[StateT, EventT], StateT], initial: StateT) -> None:
        self._transitions = transitions
        self._state = initial

    def handle(self, event: EventT) -> StateT:
        """Moves on and returns the new state. Raises ImpossibleTransition."""
        self._state = step(self._transitions, self._state, event)
        return self._state

    @property
    def state(self) -> StateT:
        """Where the walk stands."""
        return self._state

    def accepts(self, event: EventT) -> bool:
        """Whether the table lists this event for the present state."""
        return (self._state, event) in self._transitions
