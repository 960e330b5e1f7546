"""Waits for the end of several operations."""

from __future__ import annotations

from collections.abc import Iterable

from hbroker.gateway.outbox import Done

__all__ = ["WaitGroup"]


class WaitGroup:
    """Calls all waiting callbacks when every operation has ended, with whether all of them succeeded.

    Callbacks may be added to `waiting` until then.
    """

    def __init__(self, waiting: Iterable[Done]) -> None:
        self._waiting = waiting
        self._open = 1
        self._is_good = True

    def one_more(self) -> Done:
        """Begins an operation. Call the returned function when it has ended."""
        self._open += 1
        return self._one_less

    def close(self, now: int) -> None:
        """No more operations are begun."""
        self._one_less(now, True)

    def _one_less(self, now: int, is_good: bool) -> None:
        self._open -= 1
        self._is_good &= is_good
        if not self._open:
            for done in self._waiting:
                done(now, self._is_good)
