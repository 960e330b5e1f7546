"""The subscriptions that a node stores: soft state, one record for each session and filter (§6.3).

The native core holds the same in its trie, for matching; here they are kept for what a decision needs:
which of them a subtree touches when it is handed over, and whose they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hbroker._native import filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Address, address_from, address_of

__all__ = ["MOST_FILTERS", "Subscribers", "Subscription", "ended_of", "record_of", "subscription_from"]

MOST_FILTERS: Final = 1_000_000
"""Filters of one session; further ones are refused with QUOTA_EXCEEDED."""


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
    """Every subscription stored, by link and filter."""

    def __init__(self) -> None:
        self._by_link: dict[int, dict[str, Subscription]] = {}
        self._count = 0

    def add(self, link: int, subscription: Subscription) -> None:
        """Adds, or replaces one of the same filter."""
        filters = self._by_link.setdefault(link, {})
        self._count += subscription.filter not in filters
        filters[subscription.filter] = subscription

    def remove(self, link: int, filter: str) -> Subscription | None:
        filters = self._by_link.get(link, {})
        removed = filters.pop(filter, None)
        if removed is not None:
            self._count -= 1
            if not filters:
                del self._by_link[link]
        return removed

    def remove_link(self, link: int) -> list[Subscription]:
        removed = list(self._by_link.pop(link, {}).values())
        self._count -= len(removed)
        return removed

    def has_room(self, link: int, filter: str) -> bool:
        filters = self._by_link.get(link, {})
        return filter in filters or len(filters) < MOST_FILTERS

    def touching(self, subtree: str) -> Iterator[tuple[int, Subscription]]:
        """(link, subscription) of all whose filter some topic at or below the subtree can match."""
        for link, filters in self._by_link.items():
            for subscription in filters.values():
                if filter_touches(subscription.filter, subtree):
                    yield link, subscription

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, Subscription]]:
        for link, filters in self._by_link.items():
            for subscription in filters.values():
                yield link, subscription


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
