"""State machines as data: a table (state, event) -> state.

The table is the specification, and the diagrams in docs/states.md are generated from it. If the table has no
entry for an event in the present state, the code that raised the event has a defect. Input from the network
must not cause this. So a caller first calls `accepts` for such input, and discards it if the machine does not
accept it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

__all__ = ["ImpossibleTransition", "StateMachine", "Symbol", "step"]

StateT = TypeVar("StateT", bound=Enum)
EventT = TypeVar("EventT", bound=Enum)


class Symbol(Enum):
    """A state or an event of a machine with many transitions. It hashes by identity, which is faster than the
    hash of a plain Enum member."""

    __hash__ = object.__hash__


class ImpossibleTransition(AssertionError):
    """The table has no entry for this event in this state."""


def step(transitions: Mapping[tuple[StateT, EventT], StateT], state: StateT, event: EventT) -> StateT:
    """The next state, for a caller that keeps the state itself. Raises ImpossibleTransition."""
    try:
        return transitions[state, event]
    except KeyError:
        raise ImpossibleTransition(f"{event} in {state}") from None


class StateMachine(Generic[StateT, EventT]):
    """One instance of a state machine."""

    __slots__ = ("_state", "_transitions")

    def __init__(self, transitions: Mapping[tuple[StateT, EventT], StateT], initial: StateT) -> None:
        self._transitions = transitions
        self._state = initial

    def handle(self, event: EventT) -> StateT:
        """Changes to the next state and returns it. Raises ImpossibleTransition."""
        self._state = step(self._transitions, self._state, event)
        return self._state

    @property
    def state(self) -> StateT:
        """The present state."""
        return self._state

    def accepts(self, event: EventT) -> bool:
        """Whether the table has an entry for this event in the present state."""
        return (self._state, event) in self._transitions
