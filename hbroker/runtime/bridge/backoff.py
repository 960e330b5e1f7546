"""How long a bridge waits before it connects again."""

from __future__ import annotations

from random import Random

__all__ = ["Backoff"]


class Backoff:
    """Random pauses: each is between `least` and three times the one before, and `most` at most. All in
    seconds. Bridges that lost one broker do not all come back at once."""

    def __init__(self, least: float, most: float, random: Random) -> None:
        self._least = least
        self._most = most
        self._random = random
        self._pause = least

    def next(self) -> float:
        """The next pause."""
        self._pause = self._random.uniform(self._least, min(self._most, 3 * self._pause))
        return self._pause

    def reset(self) -> None:
        """Begins again: the connection was good."""
        self._pause = self._least
