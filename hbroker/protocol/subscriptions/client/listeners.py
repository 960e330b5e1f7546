"""The listeners of one subscription: many listeners, with few different options.

A gateway has a listener for each MQTT client that wants a filter, perhaps fifty thousand. What the
subscription asks of its owners follows from the different options. So these are counted, and the cost does
not depend on the number of listeners.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping

from hbroker.protocol.subscriptions.client.options import Options

__all__ = ["Listeners"]


class Listeners(MutableMapping[int, "Options"]):
    """The options of each listener by its id, in the order in which they were added."""

    __slots__ = ("_by_id", "_kinds")

    def __init__(self) -> None:
        self._by_id: dict[int, Options] = {}
        self._kinds: dict[Options, int] = {}

    @property
    def kinds(self) -> Collection[Options]:
        """The different options, each once."""
        return self._kinds.keys()

    def __getitem__(self, listener: int) -> Options:
        return self._by_id[listener]

    def __setitem__(self, listener: int, options: Options) -> None:
        if listener in self._by_id:
            del self[listener]
        self._by_id[listener] = options
        self._kinds[options] = self._kinds.get(options, 0) + 1

    def __delitem__(self, listener: int) -> None:
        options = self._by_id.pop(listener)
        left = self._kinds.pop(options) - 1
        if left:
            self._kinds[options] = left

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)
