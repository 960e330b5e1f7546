"""Who serves which subtree, as far as several clients behind one address have heard: hints, never proof.

A gateway has thousands of network clients, and most want topics of the same few owners. What one of them was
told by a node (§5.2, §6.1), the others need not ask again: they make a subscription with that node at once,
within the session, and name it there for the subtree as a parent would have done. Its answer says what it
holds *now*, and what it has delegated; if that does not stand for the subtree (§6.1), or nothing comes, the
client discovers from the root as ever. So a hint that is out of date costs time, and no subscription is
complete because of it: no topic has two owners, and the one that is responsible for all of a subtree, less
the cuts that it names, speaks for all of it.

A node that claims more than is its own gets nothing by it: what it holds it is believed only as far as the
root, or whoever is known to hold what is around, has named it for that; the root is known by its address.

Only what one node seems to serve alone is looked up here. A filter that reaches into other nodes' subtrees is
asked of the root, which reaches all of them in one round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.protocol.packets import Address, cut_from
from hbroker.protocol.resolution.answer_cache import AnswerCache
from hbroker.protocol.resolution.requests import TokenCache
from hbroker.protocol.timers import SECOND, ZONE_TTL
from hbroker.subtree import depth, prefixes

__all__ = ["HINT_PATIENCE", "Holder", "Knowledge", "OwnerCache"]

HINT_PATIENCE: Final = 2 * SECOND
"""How long a node that nobody named just now is waited for."""

_MOST_SUBTREES: Final = 4_096
_MOST_TOKENS: Final = 16_384
_RESERVED: Final = "$"
"""Topics that begin so belong to the nodes, each to its own; no prefix tells whose they are."""


class Holder(NamedTuple):
    """A node, and a subtree that it was said to hold until the time `until`."""

    subtree: str
    node: str
    address: Address
    until: int


class OwnerCache:
    """At most `most` subtrees with their holders. 0: it learns nothing, and knows nothing."""

    def __init__(self, most: int = _MOST_SUBTREES) -> None:
        self._most = most
        self._holders: dict[str, Holder] = {}
        self._at: dict[Address, set[str]] = {}
        self._below: Counter[str] = Counter()
        """How many of the subtrees lie within each prefix, itself excepted."""

    def learn(
        self,
        now: int,
        node: str,
        address: Address,
        held: Iterable[str],
        cuts: Iterable[pb.Cut],
        *,
        is_root: bool = False,
    ) -> None:
        """A node says what it holds and what it has delegated. `is_root`: at the root's address."""
        if not self._most:
            return
        until = now + ZONE_TTL
        for subtree in held:
            if is_root or self._is_at(subtree, address):
                self._put(Holder(subtree, node, address, until))
        for subtree, named, there, _ in filter(None, map(cut_from, cuts)):
            around = self._deepest(_around(subtree))
            is_its_own = self._is_at(subtree, address) or (around is not None and around.address == address)
            if is_root or is_its_own:
                self._put(Holder(subtree, named, there, until))

    def forget(self, address: Address) -> None:
        """The node at this address is silent, or is not what it was taken for."""
        for subtree in list(self._at.get(address, ())):
            self._remove(subtree)

    def sole_holder(self, now: int, filter: str) -> Holder | None:
        """The node that, as far as is known, serves all that a valid filter matches; None: no single one is
        known to."""
        if not self._holders or filter.startswith(_RESERVED):
            return None
        prefix = _literal(filter)
        if prefix != filter and self._below[prefix]:
            return None
        known = self._deepest(prefixes(prefix, depth(prefix)))
        if known is not None and known.until <= now:
            self._remove(known.subtree)
            return None
        return known

    def __len__(self) -> int:
        return len(self._holders)

    def _deepest(self, around: Iterable[str]) -> Holder | None:
        """Of subtrees, each in the one before, the last that has a known holder."""
        known = None
        for subtree in around:
            known = self._holders.get(subtree, known)
        return known

    def _is_at(self, subtree: str, address: Address) -> bool:
        known = self._holders.get(subtree)
        return known is not None and known.address == address

    def _put(self, holder: Holder) -> None:
        known = self._holders.get(holder.subtree)
        if known is not None and known.address == holder.address:
            self._holders[holder.subtree] = holder
            return
        if known is not None:
            self._remove(holder.subtree)
        elif len(self._holders) >= self._most:
            self._remove(next(iter(self._holders)))
        self._holders[holder.subtree] = holder
        self._at.setdefault(holder.address, set()).add(holder.subtree)
        self._below.update(_around(holder.subtree))

    def _remove(self, subtree: str) -> None:
        holder = self._holders.pop(subtree)
        there = self._at[holder.address]
        there.discard(subtree)
        if not there:
            del self._at[holder.address]
        for around in _around(subtree):
            self._below[around] -= 1
            if not self._below[around]:
                del self._below[around]


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What clients behind one address know of the nodes together: tokens prove an address, whoever of them
    sends (§4.2). `owner_cache`, `answer_cache`: such as learn nothing where a client is alone."""

    tokens: TokenCache = field(default_factory=lambda: ExpiringCache(_MOST_TOKENS))
    owner_cache: OwnerCache = field(default_factory=lambda: OwnerCache(0))
    answer_cache: AnswerCache = field(default_factory=lambda: AnswerCache(0))

    @classmethod
    def shared(cls) -> Knowledge:
        """For clients that are not alone."""
        return cls(owner_cache=OwnerCache(), answer_cache=AnswerCache())


def _literal(filter: str) -> str:
    """The subtree that holds all that a filter matches: its levels before the first wildcard."""
    levels = filter.split("/")
    for number, level in enumerate(levels):
        if level in ("+", "#"):
            return "/".join(levels[:number])
    return filter


def _around(subtree: str) -> list[str]:
    """The prefixes of a subtree, itself excepted."""
    return [*prefixes(subtree, depth(subtree))][:-1] if subtree else []
