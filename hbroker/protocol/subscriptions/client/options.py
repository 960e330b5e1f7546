"""What the application asks of a subscription: its key, the options of each listener, and all its listeners.

A gateway has a listener for each MQTT client that wants a filter, perhaps fifty thousand, with few different
options. What the subscription asks of its owners follows from the different options. So these are counted,
and the cost does not depend on the number of listeners.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Key", "Listeners", "NewListener", "Options"]

Key: TypeAlias = tuple[str, str]
"""(group, filter): a client has one subscription for each. The group is empty unless the subscription is
shared."""


@dataclass(frozen=True, slots=True)
class Options:
    """Subscription options, the fields of SUBSCRIBE (MQTT 5 §3.8.3.1).

    `overflow`, `queue_messages` and `queue_bytes` are the policy and the bounds of the queue (§7.8). A bound
    of 0 asks for the node's default.
    """

    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    overflow: int = 0
    queue_messages: int = 0
    queue_bytes: int = 0


@dataclass(frozen=True, slots=True)
class NewListener:
    """A listener to be added: its id, its group and filter, and its options."""

    listener: int
    key: Key
    options: Options


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
