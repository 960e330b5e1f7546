"""Messages that are published together: cut into parts that cross into the core at once, and followed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from hbroker.protocol.results import Published, Result
from hbroker.runtime.client.failure import of_publication
from hbroker.runtime.client.publication import encoded

__all__ = ["Batch", "Messages", "parts"]

Messages: TypeAlias = Iterable[tuple[str, bytes | str]]
"""(topic, payload) of each."""

_TOGETHER: Final = 256
"""Few enough for the core to go on meanwhile."""


def parts(messages: Messages) -> Iterator[list[tuple[str, bytes]]]:
    """The messages in order, some at once. What yields them is asked for more as they go."""
    coming = iter(messages)
    while part := [
        (topic, payload if type(payload) is bytes else encoded(payload))
        for topic, payload in islice(coming, _TOGETHER)
    ]:
        yield part


class Batch:
    """Of which messages the outcome is not known yet, and the first error. `on_news`: called after each."""

    def __init__(self, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        self.waiting: set[int] = set()
        self.error: Exception | None = None

    def set(self, result: Result | Exception) -> None:
        """One outcome; an exception: there will be no more."""
        if isinstance(result, Published):
            self.waiting.discard(result.sequence)
            self.error = self.error or of_publication(result)
        elif isinstance(result, Exception):
            self.waiting.clear()
            self.error = self.error or result
        self._on_news()

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be waited for."""
        return not self.waiting or self.error is not None
