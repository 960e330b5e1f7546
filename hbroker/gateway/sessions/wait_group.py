"""Several things that are begun together, and those who wait until the last of them has ended."""

from __future__ import annotations

from collections.abc import Iterable

from hbroker.gateway.outbox import Done

__all__ = ["WaitGroup"]


class WaitGroup:
    """Tells all who wait once all that was begun has ended, and whether all of it went well. Who waits may be
    added to until then."""

    def __init__(self, waiting: Iterable[Done]) -> None:
        self._waiting = waiting
        self._open = 1
        self._is_good = True

    def one_more(self) -> Done:
        """One more thing that is begun; to be called when it has ended."""
        self._open += 1
        return self._one_less

    def close(self, now: int) -> None:
        """Nothing more is begun."""
        self._one_less(now, True)

    def _one_less(self, now: int, is_good: bool) -> None:
        self._open -= 1
        self._is_good &= is_good
        if not self._open:
            for done in self._waiting:
                done(now, self._is_good)
