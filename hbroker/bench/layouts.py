"""Layouts: which publishers publish to which subscribers.

A publisher has one topic, or several topics below one name. A subscriber has one name, too, and receives the
messages of a range of publishers there. Publishers are in groups, each of which is counted separately.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hbroker.bench.chain import node_at, subtree_at

__all__ = ["LAYOUTS", "Group", "Layout", "Shape"]


@dataclass(frozen=True, slots=True)
class Group:
    """A group of publishers.

    `is_paced`: they keep to the load's rate, if it has one. `is_windowed`: they keep to its window, if it has
    one. `owner`: the node that owns their topics, if it is not the same for all groups.
    """

    name: str
    publishers: int
    is_paced: bool = True
    is_windowed: bool = True
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """A layout of a certain size.

    `groups`: of the publishers, which are numbered across groups. `publishers`: by publisher, the number of
    its topic. `subscribers`: by subscriber, the number of its topic, its first publisher, and the number of
    its publishers. `subtrees`: by topic, its subtree; (): all are the root's.
    """

    groups: tuple[Group, ...]
    publishers: tuple[int, ...]
    subscribers: tuple[tuple[int, int, int], ...]
    subtrees: tuple[str, ...] = ()

    @property
    def copies(self) -> int:
        """The number of copies if each publisher sends one message."""
        return sum(count for _, _, count in self.subscribers)

    @property
    def paced(self) -> int:
        """The number of publishers that keep to a rate."""
        return sum(group.publishers for group in self.groups if group.is_paced)

    @property
    def windowed(self) -> int:
        """The number of publishers that keep to a window."""
        return sum(group.publishers for group in self.groups if group.is_windowed)


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout.

    `clients`: the default number. `window`: the default of messages in flight in all. `text`: its
    description, with {clients} and {depth}. `of`: its shape, for a number of clients and a depth. `rate`:
    messages a second; None: no limit.
    """

    clients: int
    window: int
    text: str
    of: Callable[[int, int], Shape]
    rate: float | None = None


def _pairs(clients: int, _depth: int) -> Shape:
    return Shape((Group("pairs", clients),), tuple(range(clients)), _one_each(clients))


def _fan_in(clients: int, _depth: int) -> Shape:
    return Shape((Group("fanin", clients),), (0,) * clients, ((0, 0, clients),))


def _fan_out(clients: int, _depth: int) -> Shape:
    return Shape((Group("fanout", 1),), (0,), ((0, 0, 1),) * clients)


def _mixed(clients: int, _depth: int) -> Shape:
    groups = (Group("sparse", 1, is_windowed=False), Group("neighbours", clients, is_paced=False))
    return Shape(groups, tuple(range(1 + clients)), _one_each(1 + clients))


def _tree(clients: int, depth: int) -> Shape:
    depths = range(1, depth + 1)
    return Shape(
        groups=tuple(Group(f"depth {level}", clients, owner=node_at(level)) for level in depths),
        publishers=tuple(range(depth * clients)),
        subscribers=_one_each(depth * clients),
        subtrees=tuple(subtree_at(level) for level in depths for _ in range(clients)),
    )


def _one_each(pairs: int) -> tuple[tuple[int, int, int], ...]:
    return tuple((pair, pair, 1) for pair in range(pairs))


LAYOUTS: Final[dict[str, Layout]] = {
    "pairs": Layout(8, 4_096, "{clients} pairs", _pairs),
    "fanin": Layout(8, 4_096, "{clients} to 1", _fan_in),
    "fanout": Layout(1_000, 64, "1 to {clients}", _fan_out),
    "mixed": Layout(1, 4_096, "1 sparse pair beside {clients}", _mixed, rate=10.0),
    "tree": Layout(1, 4_096, "{clients} at each depth from 1 to {depth}", _tree),
}
