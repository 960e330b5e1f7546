"""The subscriptions that a node stores: soft state, one record for each session and filter (§6.3).

The native core holds the same in its trie, for matching; here they are kept for what a decision needs:
which of them a subtree touches when it is handed over, and whose they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hbroker._native import filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Address, address_from, address_of

__all__ = ["Subscribers", "Subscription", "ended_of", "record_of", "subscription_from"]

_BYTES_EACH: Final = 64
"""A filter costs memory for its length, most of all in levels: it counts once more for so many bytes."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One session's interest in one filter."""

    session: int
    address: Address
    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    client: str = ""


class Subscribers:
    """Every subscription stored, by session and filter.

    `most`: what the filters of one session may count for.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_session: dict[int, dict[str, Subscription]] = {}
        self._weights: Counter[int] = Counter()
        self._count = 0

    def add(self, subscription: Subscription) -> None:
        """Adds, or replaces one of the same filter."""
        session = subscription.session
        filters = self._by_session.setdefault(session, {})
        if subscription.filter not in filters:
            self._count += 1
            self._weights[session] += _weight(subscription.filter)
        filters[subscription.filter] = subscription

    def remove(self, session: int, filter: str) -> Subscription | None:
        filters = self._by_session.get(session, {})
        removed = filters.pop(filter, None)
        if removed is not None:
            self._count -= 1
            self._weights[session] -= _weight(filter)
            if not filters:
                del self._by_session[session], self._weights[session]
        return removed

    def remove_session(self, session: int) -> list[Subscription]:
        removed = list(self._by_session.pop(session, {}).values())
        self._count -= len(removed)
        del self._weights[session]
        return removed

    def has_room(self, session: int, filter: str) -> bool:
        """Whether another filter would stay within the limit; one that is there already always does."""
        is_known = filter in self._by_session.get(session, {})
        return is_known or self._weights[session] + _weight(filter) <= self._most

    def touching(self, subtree: str) -> Iterator[tuple[int, Subscription]]:
        """(session, subscription) of all whose filter some topic at or below the subtree can match."""
        for session, filters in self._by_session.items():
            for subscription in filters.values():
                if filter_touches(subscription.filter, subtree):
                    yield session, subscription

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, Subscription]]:
        for session, filters in self._by_session.items():
            for subscription in filters.values():
                yield session, subscription


def _weight(filter: str) -> int:
    return 1 + len(filter) // _BYTES_EACH


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
        min(record.qos, 2),
        record.no_local,
        record.retain_as_published,
        record.client,
    )
