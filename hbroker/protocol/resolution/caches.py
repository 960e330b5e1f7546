"""What clients behind one address share about nodes: hints which of them owns what.

A gateway has thousands of network clients, which may start at the same moment, and most want topics of the
same few owners. No client waits for another's answer. But the work of a slow node must not grow with its
slowness. So before a client asks, it looks here.

**Answers** (§5.2). An answer names a zone, not a topic, and another client would get the same one. It is
given to other clients for a short time, and once to each client. If a client asks again, it has found the
answer wrong (its link ended, or the owner refused: §5.3). Then the answer is removed.

**Owners.** If a node has told one client what it holds (§5.2, §6.1), the others need not discover it. They
make a subscription with that node at once, within the session, as if a parent had named the node for that
subtree (§6.2). The node's answer says what it holds now, and its cuts. If the answer does not stand for the
subtree (§6.1), or none arrives, the client discovers from the root as usual. So an outdated hint costs time,
and never makes a subscription look complete: no topic has two owners, and the owner of a whole subtree, less
the cuts that it names, answers for all of it.

A node gains nothing by claiming more than it owns. Its claim to a subtree is believed only if the root, or
the known holder of what is around, has named it for that subtree. The root is known by its address.

Only filters that one node seems to serve alone have an owner here. For other filters the client asks the
root, which reaches all owners in one round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.protocol.packets import Address, cut_from
from hbroker.protocol.resolution.requests import TokenCache
from hbroker.protocol.timers import SECOND, ZONE_TTL
from hbroker.subtree import depth, is_within, prefixes

__all__ = [
    "FRESH",
    "HINT_TIMEOUT",
    "AnswerCache",
    "CachedOwner",
    "OwnerCache",
    "ResolverCaches",
    "ZoneAnswer",
    "covers",
]

FRESH: Final = 5 * SECOND
"""Microseconds for which an answer is given to other clients. A later client asks for itself. So it does not
first wait on a link to an owner that died before it came."""

_MOST_ANSWERS: Final = 1_024

HINT_TIMEOUT: Final = 2 * SECOND
"""Microseconds that a client waits for a node that it knows only from this cache."""

_MOST_SUBTREES: Final = 4_096
_MOST_TOKENS: Final = 16_384
_RESERVED: Final = "$"
"""Topics that begin with this belong to nodes, each to its own, so no prefix of them has one owner."""


class ZoneAnswer(NamedTuple):
    """A zone, its owner, and a token for the owner (§4.2). `until`: when the zone expires, in
    microseconds."""

    zone: pb.Zone
    owner: Address
    token: bytes
    until: int


class AnswerCache:
    """The latest answer for each of at most `most` scopes. 0: the cache stays empty."""

    def __init__(self, most: int = _MOST_ANSWERS) -> None:
        self._most = most
        self._by_scope: ExpiringCache[str, ZoneAnswer] = ExpiringCache(most)
        self._deepest = 0

    def put(self, now: int, answer: ZoneAnswer) -> None:
        """Stores an answer that a client received."""
        if self._most:
            self._by_scope.put(answer.zone.scope, answer, min(now + FRESH, answer.until))
            self._deepest = max(self._deepest, depth(answer.zone.scope))

    def find(self, now: int, topic: str) -> ZoneAnswer | None:
        """The answer with the longest scope around a topic, if it names the topic's owner; else None."""
        if not len(self._by_scope):
            return None
        around = (self._by_scope.get(now, scope) for scope in prefixes(topic, self._deepest))
        nearest = None
        for answer in around:
            nearest = answer or nearest
        return nearest if nearest is not None and covers(nearest.zone, topic) else None

    def discard(self, answer: ZoneAnswer) -> None:
        """Removes an answer that was wrong. Idempotent."""
        self._by_scope.drop(answer.zone.scope, answer)


def covers(zone: pb.Zone, topic: str) -> bool:
    """Whether the zone's owner owns the topic: it lies in the scope, and below no cut (§5.3)."""
    return is_within(topic, zone.scope) and not any(is_within(topic, cut.subtree) for cut in zone.cuts)


class CachedOwner(NamedTuple):
    """A node, and a subtree that it was said to hold. `until`: when this expires, in microseconds."""

    subtree: str
    node: str
    address: Address
    until: int


class OwnerCache:
    """At most `most` subtrees with their holders. 0: the cache stays empty."""

    def __init__(self, most: int = _MOST_SUBTREES) -> None:
        self._most = most
        self._holders: dict[str, CachedOwner] = {}
        self._at: dict[Address, set[str]] = {}
        self._below: Counter[str] = Counter()
        """For each prefix, the number of cached subtrees that lie within it, not counting the prefix
        itself."""

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
        """Takes what a node says about the subtrees that it holds and its cuts. `is_root`: it has the root's
        address."""
        if not self._most:
            return
        until = now + ZONE_TTL
        for subtree in held:
            if is_root or self._is_at(subtree, address):
                self._put(CachedOwner(subtree, node, address, until))
        for subtree, named, there, _ in filter(None, map(cut_from, cuts)):
            around = self._deepest(_around(subtree))
            is_its_own = self._is_at(subtree, address) or (around is not None and around.address == address)
            if is_root or is_its_own:
                self._put(CachedOwner(subtree, named, there, until))

    def forget(self, address: Address) -> None:
        """Removes the node at this address, which is silent or did not hold what was cached."""
        for subtree in list(self._at.get(address, ())):
            self._remove(subtree)

    def sole_owner(self, now: int, filter: str) -> CachedOwner | None:
        """The node that seems to serve all topics that a valid filter matches; None: no single node does."""
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

    def _deepest(self, around: Iterable[str]) -> CachedOwner | None:
        """The last of these subtrees, each of which lies in the one before, that has a known holder."""
        known = None
        for subtree in around:
            known = self._holders.get(subtree, known)
        return known

    def _is_at(self, subtree: str, address: Address) -> bool:
        known = self._holders.get(subtree)
        return known is not None and known.address == address

    def _put(self, holder: CachedOwner) -> None:
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
class ResolverCaches:
    """What clients behind one address share about nodes. `tokens`: an address token proves the address,
    whichever client sends it (§4.2). `owner_cache`, `answer_cache`: stay empty by default, for a client that
    is alone."""

    tokens: TokenCache = field(default_factory=lambda: ExpiringCache(_MOST_TOKENS))
    owner_cache: OwnerCache = field(default_factory=lambda: OwnerCache(0))
    answer_cache: AnswerCache = field(default_factory=lambda: AnswerCache(0))

    @classmethod
    def shared(cls) -> ResolverCaches:
        """For several clients."""
        return cls(owner_cache=OwnerCache(), answer_cache=AnswerCache())


def _literal(filter: str) -> str:
    """The subtree of all topics that a filter matches: its levels before the first wildcard."""
    levels = filter.split("/")
    for number, level in enumerate(levels):
        if level in ("+", "#"):
            return "/".join(levels[:number])
    return filter


def _around(subtree: str) -> list[str]:
    """The prefixes of a subtree, without the subtree itself."""
    return [*prefixes(subtree, depth(subtree))][:-1] if subtree else []
