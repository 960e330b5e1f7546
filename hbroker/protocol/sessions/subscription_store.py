"""The subscriptions that a node stores, one for each session, group and filter (§6.3, §6.5).

The native core has the same subscriptions in its trie, for matching. This module has them for decisions:
which subscriptions a subtree touches when it is handed over, and whose they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from hbroker._native import filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.config import WorkspaceQuotas
from hbroker.protocol.packets import Address, address_from, address_of
from hbroker.protocol.sessions.filter_index import FilterIndex
from hbroker.protocol.sessions.wildcard_shapes import WildcardShapes
from hbroker.protocol.sessions.workspace_quotas import QuotaCounts

__all__ = [
    "MOST_OVERFLOW",
    "MOST_QOS",
    "Key",
    "Subscription",
    "SubscriptionStore",
    "ended_of",
    "filter_cost",
    "record_of",
    "subscription_from",
]

Key: TypeAlias = tuple[str, str]
"""(group, filter)."""

MOST_QOS: Final = 2
MOST_OVERFLOW: Final = 2

_BYTES_EACH: Final = 64
"""The memory of a filter depends on its length, most of all on its levels. Each this many bytes of it count
as one filter more."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One session's subscription to one filter.

    - `address`: the address of its client when the client made it.
    - `group`: empty: it is not shared.
    - `overflow`: what the owner does when its queue overflows (§7.8).
    - `interrupted`: since it was made, an owner of topics that it matches was lost (§6.4).
    - `rights`: the key of the rights of its client (§4.6), while it is made or handed over. Afterwards its
      session has them.
    - `is_prepared`: it came with a handover of a subtree that this node does not serve yet, and is here for
      nothing else (§5.4).
    """

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
    rights: int = 0

    @property
    def key(self) -> Key:
        """A session has one subscription for each key."""
        return self.group, self.filter


class SubscriptionStore:
    """All stored subscriptions. `most`: the most that the filters of one session may count for. `workspaces`:
    the quotas of workspaces.

    Nearly all subscriptions stay unchanged until their session ends, and nearly every session has one. So
    each is stored as bytes (`_packed`), which takes a tenth of the memory, and a session with one
    subscription has no table.
    """

    def __init__(self, most: int, workspaces: Sequence[WorkspaceQuotas] = ()) -> None:
        self._most = most
        self._workspaces = QuotaCounts(workspaces)
        self._by_session: dict[int, bytes | _SessionSubscriptions] = {}
        self._index = FilterIndex()
        """A session with one subscription by its id; the subscriptions of others by session id and key."""
        self._shapes = WildcardShapes()
        self._count = 0

    def workspace_usage(self) -> dict[str, dict[str, int]]:
        """As `QuotaCounts.usage`."""
        return self._workspaces.usage()

    def add(self, subscription: Subscription) -> None:
        """Adds a subscription, or replaces the one of the same session, group and filter."""
        session, key, packed = subscription.session, subscription.key, _packed(subscription)
        known = self._by_session.get(session)
        if isinstance(known, bytes) and (only := _key_of(known)) != key:
            known = self._by_session[session] = _SessionSubscriptions({only: known}, filter_cost(only))
            self._index.remove(only[1], session)
            self._index.add(only[1], (session, only))
        if isinstance(known, _SessionSubscriptions):
            if key not in known.packed:
                self._note_added(session, key[1])
                self._index.add(key[1], (session, key))
            known.put(key, packed)
        else:
            if known is None:
                self._note_added(session, key[1])
                self._index.add(key[1], session)
            self._by_session[session] = packed

    def remove(self, session: int, key: Key) -> Subscription | None:
        """Removes a subscription and returns it; None: there was none."""
        removed = self.get(session, key)
        if removed is None:
            return None
        self._note_removed(session, key[1])
        known = self._by_session.pop(session)
        if not isinstance(known, _SessionSubscriptions):
            self._index.remove(key[1], session)
            return removed
        self._index.remove(key[1], (session, key))
        left = self._by_session[session] = known.without(key)
        if isinstance(left, bytes):
            only = _key_of(left)
            self._index.remove(only[1], (session, only))
            self._index.add(only[1], session)
        return removed

    def remove_session(self, session: int) -> list[Subscription]:
        """Removes and returns all subscriptions of a session."""
        removed = list(self.of(session))
        known = self._by_session.pop(session, None)
        for subscription in removed:
            entry = (session, subscription.key) if isinstance(known, _SessionSubscriptions) else session
            self._note_removed(session, subscription.filter)
            self._index.remove(subscription.filter, entry)
        return removed

    def get(self, session: int, key: Key) -> Subscription | None:
        """The subscription of this session, group and filter, or None."""
        known = self._by_session.get(session)
        if isinstance(known, _SessionSubscriptions):
            known = known.packed.get(key)
        return None if known is None or _key_of(known) != key else _unpacked(session, known)

    def of(self, session: int) -> Iterator[Subscription]:
        """All subscriptions of a session."""
        return (_unpacked(session, packed) for packed in _each(self._by_session.get(session)))

    def has_any(self, session: int) -> bool:
        """Whether a session has a subscription."""
        return session in self._by_session

    def has_room(self, session: int, key: Key) -> bool:
        """Whether a subscription stays within the limits. One that is stored already always does."""
        known = self._by_session.get(session)
        if isinstance(known, _SessionSubscriptions):
            is_there, others = key in known.packed, known.filter_cost
        else:
            is_there = known is not None and _key_of(known) == key
            others = 0 if known is None else filter_cost(_key_of(known))
        fits = others + filter_cost(key) <= self._most and self._shapes.has_room(session, key[1])
        return is_there or (fits and self._workspaces.has_room(session, key[1]))

    def touching(self, subtree: str) -> Iterator[Subscription]:
        """All subscriptions whose filter can match a topic at or below the subtree."""
        for entry in self._index.candidates(subtree):
            session, key = entry if isinstance(entry, tuple) else (entry, None)
            known = self._by_session[session]
            packed = (
                known.packed[key] if isinstance(known, _SessionSubscriptions) and key is not None else known
            )
            assert isinstance(packed, bytes), "a session is indexed as it is kept"
            if filter_touches(_key_of(packed)[1], subtree):
                yield _unpacked(session, packed)

    def _note_added(self, session: int, filter: str) -> None:
        self._count += 1
        self._shapes.add(session, filter)
        self._workspaces.add(session, filter)

    def _note_removed(self, session: int, filter: str) -> None:
        self._count -= 1
        self._shapes.remove(session, filter)
        self._workspaces.remove(session, filter)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Subscription]:
        for session, known in self._by_session.items():
            for packed in _each(known):
                yield _unpacked(session, packed)


@dataclass(slots=True, eq=False)
class _SessionSubscriptions:
    """The subscriptions of a session with more than one, and what their filters count for together."""

    packed: dict[Key, bytes]
    filter_cost: int

    def put(self, key: Key, packed: bytes) -> None:
        """Adds a subscription, or replaces it."""
        if key not in self.packed:
            self.filter_cost += filter_cost(key)
        self.packed[key] = packed

    def without(self, key: Key) -> bytes | _SessionSubscriptions:
        """What is left after a subscription was removed, which must be there."""
        del self.packed[key]
        self.filter_cost -= filter_cost(key)
        return self if len(self.packed) > 1 else next(iter(self.packed.values()))


def _each(known: bytes | _SessionSubscriptions | None) -> Iterable[bytes]:
    if isinstance(known, _SessionSubscriptions):
        return known.packed.values()
    return () if known is None else (known,)


_PREFIX: Final = Struct("<BHBII")
"""Options, port, and the lengths of the texts that follow: ip, client, group. The filter is the last text."""


def _packed(subscription: Subscription) -> bytes:
    """A subscription as bytes, without its session."""
    ip, port = subscription.address
    texts = [text.encode() for text in (ip, subscription.client, subscription.group, subscription.filter)]
    options = (
        subscription.qos
        | subscription.overflow << 2
        | subscription.no_local << 4
        | subscription.retain_as_published << 5
        | subscription.interrupted << 6
        | subscription.is_prepared << 7
    )
    return _PREFIX.pack(options, port, *map(len, texts[:3])) + b"".join(texts)


def _unpacked(session: int, packed: bytes) -> Subscription:
    options, port, ip, client, _ = _PREFIX.unpack_from(packed)
    group, filter = _key_of(packed)
    start = _PREFIX.size + ip
    return Subscription(
        session,
        (packed[_PREFIX.size : start].decode(), port),
        filter,
        qos=options & 3,
        no_local=bool(options & 16),
        retain_as_published=bool(options & 32),
        client=packed[start : start + client].decode(),
        group=group,
        overflow=options >> 2 & 3,
        interrupted=bool(options & 64),
        is_prepared=bool(options & 128),
    )


def _key_of(packed: bytes) -> Key:
    _, _, ip, client, group = _PREFIX.unpack_from(packed)
    start = _PREFIX.size + ip + client
    return packed[start : start + group].decode(), packed[start + group :].decode()


def filter_cost(key: Key) -> int:
    """For how many filters this one counts, because of its length."""
    return 1 + sum(map(len, key)) // _BYTES_EACH


def record_of(subscription: Subscription) -> pb.SubscriptionRecord:
    """The record of a subscription for a handover (§5.4)."""
    record = ended_of(subscription)
    record.address.CopyFrom(address_of(subscription.address))
    record.rights = subscription.rights
    return record


def ended_of(subscription: Subscription) -> pb.SubscriptionRecord:
    """The record that ends a subscription: without an address."""
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
    """The inverse of `record_of`; None: the record ends a subscription."""
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
        rights=record.rights,
    )
