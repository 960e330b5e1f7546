"""The subscriptions that a node stores: one record for each session, shared group and filter (§6.3, §6.5).

The native core holds the same in its trie, for matching; here they are kept for what a decision needs:
which of them a subtree touches when it is handed over, and whose they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from hbroker._native import filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Address, address_from, address_of

__all__ = [
    "MOST_OVERFLOW",
    "MOST_QOS",
    "Key",
    "Subscribers",
    "Subscription",
    "ended_of",
    "record_of",
    "subscription_from",
    "weight",
]

Key: TypeAlias = tuple[str, str]
"""(group, filter)"""

MOST_QOS: Final = 2
MOST_OVERFLOW: Final = 2

_BYTES_EACH: Final = 64
"""A filter costs memory for its length, most of all in levels: it counts once more for so many bytes."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One session's interest in one filter. `address`: where its client was when it made it. `group`: empty
    where it is not shared. `overflow`: what its queue does when it is full (§7.8). `interrupted`: since
    it was made an owner of topics that it matches was lost, with what waited there (§6.4). `is_prepared`: it
    came with a subtree that this node does not serve yet, and is here for nothing else (§5.4)."""

    session: int
    address: Address
    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    client: str = ""
    group: str = ""
    overflow: int = 0
    interrupted: bool = False
    is_prepared: bool = False

    @property
    def key(self) -> Key:
        """What its session has one subscription for."""
        return self.group, self.filter


class Subscribers:
    """Every subscription stored. `most`: what the filters of one session may count for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_session: dict[int, dict[Key, Subscription]] = {}
        self._weights: Counter[int] = Counter()
        self._count = 0

    def add(self, subscription: Subscription) -> None:
        """Adds, or replaces one of the same session, group and filter."""
        session = subscription.session
        known = self._by_session.setdefault(session, {})
        if subscription.key not in known:
            self._count += 1
            self._weights[session] += weight(subscription.key)
        known[subscription.key] = subscription

    def remove(self, session: int, key: Key) -> Subscription | None:
        """Takes one out; None where there was none."""
        known = self._by_session.get(session, {})
        removed = known.pop(key, None)
        if removed is not None:
            self._count -= 1
            self._weights[session] -= weight(key)
            if not known:
                del self._by_session[session], self._weights[session]
        return removed

    def remove_session(self, session: int) -> list[Subscription]:
        """Takes all of a session out."""
        removed = list(self._by_session.pop(session, {}).values())
        self._count -= len(removed)
        del self._weights[session]
        return removed

    def get(self, session: int, key: Key) -> Subscription | None:
        """The one of this session, group and filter."""
        return self._by_session.get(session, {}).get(key)

    def has_any(self, session: int) -> bool:
        """Whether a session has one."""
        return session in self._by_session

    def has_room(self, session: int, key: Key) -> bool:
        """Whether another one would stay within the limit; one that is there already always does."""
        return self.get(session, key) is not None or self._weights[session] + weight(key) <= self._most

    def touching(self, subtree: str) -> Iterator[Subscription]:
        """All whose filter some topic at or below the subtree can match."""
        return (subscription for subscription in self if filter_touches(subscription.filter, subtree))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Subscription]:
        for known in self._by_session.values():
            yield from known.values()


def weight(key: Key) -> int:
    """For how many filters one counts that is so long."""
    return 1 + sum(map(len, key)) // _BYTES_EACH


def record_of(subscription: Subscription) -> pb.SubscriptionRecord:
    """As it moves to its topics' new owner (§5.4)."""
    record = ended_of(subscription)
    record.address.CopyFrom(address_of(subscription.address))
    return record


def ended_of(subscription: Subscription) -> pb.SubscriptionRecord:
    """Takes a record back that was sent: the same, with no address."""
    return pb.SubscriptionRecord(
        filter=subscription.filter,
        qos=pb.Qos.Name(subscription.qos),
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
        session=subscription.session,
        client=subscription.client,
        group=subscription.group,
        overflow=pb.Overflow.Name(subscription.overflow),
        interrupted=subscription.interrupted,
    )


def subscription_from(record: pb.SubscriptionRecord) -> Subscription | None:
    """The inverse of `record_of`; None for a record that took another back."""
    address = address_from(record.address)
    if address is None:
        return None
    return Subscription(
        record.session,
        address,
        record.filter,
        min(record.qos, MOST_QOS),
        record.no_local,
        record.retain_as_published,
        record.client,
        record.group,
        min(record.overflow, MOST_OVERFLOW),
        record.interrupted,
    )
