"""Whether a stream of numbered messages is whole: every number once, in order.

A number beyond the expected one opens a gap. One that fills a gap later is disordered; one that was here
before is duplicated. What is still missing at the end is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Stream"]


class Stream:
    """The numbers of one publisher and topic, which rise by one from `first`."""

    def __init__(self, first: int) -> None:
        self.received = 0
        """Different numbers."""
        self.duplicated = 0
        self.disordered = 0
        self.expected = first
        """The number that should be next."""
        self._missing: set[int] = set()

    def take(self, numbers: Sequence[int]) -> None:
        """Takes the next numbers, in the order of their arrival."""
        if numbers == list(range(self.expected, self.expected + len(numbers))):
            self.take_run(len(numbers))
            return
        for number in numbers:
            self._take(number)

    def take_run(self, count: int) -> None:
        """Takes so many numbers that are known to be the next ones."""
        self.received += count
        self.expected += count

    def _take(self, number: int) -> None:
        if number >= self.expected:
            self._missing.update(range(self.expected, number))
            self.expected = number + 1
        elif number in self._missing:
            self._missing.remove(number)
            self.disordered += 1
        else:
            self.duplicated += 1
            return
        self.received += 1
