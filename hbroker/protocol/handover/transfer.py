"""The records that move with a subtree, as packets and as the target collects them (§5.4).

A record is about one thing: a subscription, a session, a retained message, a cut, a will, a part in recovery,
the rest of a replay. A later record of the same thing replaces the one before. A record without its substance
(an address, a payload, the time left) ends the thing. Only the native core knows the messages that wait, and
the message ids that were seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar

from hbroker._native import filter_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.packets import cut_from, cut_of
from hbroker.protocol.sessions.subscription_store import Subscription, subscription_from
from hbroker.subtree import depth, is_within, prefixes

__all__ = ["CHUNK", "Keeper", "ReceivedState", "Record", "cut_record", "transfer_packets"]

CHUNK: Final = 900
"""Bytes of records in one packet, so that it fits a datagram of 1,200 bytes.

If a single record is larger, it goes alone.
"""
MOST_RECORDS: Final = 10_000_000
"""The most records of each kind in one handover, because more would exhaust the target's memory. Further ones
are discarded and counted."""

Record: TypeAlias = (
    bytes
    | pb.SubscriptionRecord
    | pb.SessionRecord
    | pb.CutRecord
    | pb.WillRecord
    | pb.GatheringRecord
    | pb.ReplayRecord
)
"""One thing that moves. Bytes: a retained message, as a serialised `Publish`."""

KeyT = TypeVar("KeyT")
RecordT = TypeVar("RecordT")

_FIELD_OF: Final[dict[type, str]] = {
    bytes: "retained",
    pb.SubscriptionRecord: "subscriptions",
    pb.SessionRecord: "sessions",
    pb.CutRecord: "cuts",
    pb.WillRecord: "wills",
    pb.GatheringRecord: "gathering",
    pb.ReplayRecord: "replays",
}


class Keeper(Protocol):
    """A part of a node whose state moves with a subtree: its sessions, its wills."""

    def records(self, subtree: str) -> Iterable[pb.SessionRecord | pb.WillRecord]:
        """The present records that concern topics at or below the subtree."""

    def take_over(self, now: int, received: ReceivedState) -> None:
        """Takes its records in, just before this node serves the subtree, and before the subscriptions."""

    def sweep(self, given: Sequence[str] = ()) -> None:
        """A grant ended without a handover, so no other node has this state. `given`: the subtrees that are
        being handed over, with their state."""

    def moved(self, subtree: str) -> None:
        """The subtree has another owner now: discards what concerns nothing that this node still owns."""


@dataclass(slots=True)
class ReceivedState:
    """The records that a target has received so far."""

    subscriptions: dict[tuple[int, str, str], Subscription] = field(default_factory=dict)
    """By session, group and filter."""
    sessions: dict[int, pb.SessionRecord] = field(default_factory=dict)
    wills: dict[int, pb.WillRecord] = field(default_factory=dict)
    """By session."""
    ended_wills: set[int] = field(default_factory=set)
    """The sessions whose wills were published or withdrawn since their owner was lost."""
    cuts: dict[str, pb.CutRecord] = field(default_factory=dict)
    """By subtree."""
    gathering: dict[str, pb.GatheringRecord] = field(default_factory=dict)
    """By subtree."""
    replays: dict[tuple[int, str, int], pb.ReplayRecord] = field(default_factory=dict)
    """By session, filter and listener."""
    held: list[int] = field(default_factory=list)
    """Where the core holds the messages that wait for sessions, and the message ids that were seen, in the
    order in which they take effect."""
    most: int = MOST_RECORDS
    refused: int = 0
    """How many records found no room."""

    def take(self, transfer: pb.Transfer) -> None:
        """Adds the records of a packet, except those that the core takes: messages, and message ids."""
        for subscription in transfer.subscriptions:
            self._take_subscription(subscription)
        for session in transfer.sessions:
            self._replace(self.sessions, session.session, session, True)
        for will in transfer.wills:
            self._replace(self.wills, will.session, will, bool(will.publish))
            (self.ended_wills.discard if will.publish else self.ended_wills.add)(will.session)
        for cut in transfer.cuts:
            self._replace(self.cuts, cut.cut.subtree, cut, cut.cut.HasField("address"))
        for part in transfer.gathering:
            self._replace(self.gathering, part.subtree, part, bool(part.remaining_us))
        for replay in transfer.replays:
            key = replay.session, replay.filter, replay.listener
            self._replace(self.replays, key, replay, filter_is_valid(replay.filter))

    def subscription_of(self, record: pb.SubscriptionRecord) -> Subscription | None:
        """The subscription of a record; None: it has ended, or is not valid."""
        return self.subscriptions.get((record.session, record.group, record.filter))

    def is_away(self, session: int) -> bool:
        """Whether a session is offline, according to its record."""
        known = self.sessions.get(session)
        return known is not None and known.HasField("away_us")

    def delegations(self, subtree: str) -> list[Delegation]:
        """The cuts below the subtree, without links and leases."""
        found = map(_delegation_from, self.cuts.values())
        return [d for d in found if d is not None and d.subtree != subtree and is_within(d.subtree, subtree)]

    def stands(self, delegation: Delegation) -> bool:
        """Whether an earlier delegation of the target still exists (§5.4, old cuts): RECORDS name it under
        the same epoch, or it lies below a subtree that they name. The source does not know what lies further
        down, which the target has delegated itself, or cut out of what another owner gave it."""
        for prefix in prefixes(delegation.subtree, depth(delegation.subtree)):
            record = self.cuts.get(prefix)
            named = None if record is None else _delegation_from(record)
            if named is not None and (named.subtree != delegation.subtree or named.epoch == delegation.epoch):
                return True
        return False

    def _take_subscription(self, record: pb.SubscriptionRecord) -> None:
        key = record.session, record.group, record.filter
        subscription = subscription_from(record)
        if subscription is None:
            self.subscriptions.pop(key, None)
        elif filter_is_valid(record.filter):
            self._replace(self.subscriptions, key, subscription, True)

    def _replace(self, known: dict[KeyT, RecordT], key: KeyT, record: RecordT, is_there: bool) -> None:
        if not is_there:
            known.pop(key, None)
        elif key in known or len(known) < self.most:
            known[key] = record
        else:
            self.refused += 1


def transfer_packets(records: Iterable[Record]) -> Iterator[pb.Transfer]:
    """Yields packets with these records, each of which fits a datagram."""
    transfer, size = pb.Transfer(), 0
    for record in records:
        length = len(record) if isinstance(record, bytes) else record.ByteSize()
        if size and size + length > CHUNK:
            yield transfer
            transfer, size = pb.Transfer(), 0
        getattr(transfer, _FIELD_OF[type(record)]).append(record)
        size += length
    if size:
        yield transfer


def cut_record(delegation: Delegation) -> pb.CutRecord:
    """The record of a delegation for its new parent."""
    serve = delegation.policy is LeasePolicy.SERVE
    return pb.CutRecord(
        cut=cut_of(delegation.as_cut()),
        incarnation=delegation.incarnation,
        policy=pb.LEASE_POLICY_SERVE if serve else pb.LEASE_POLICY_FENCE,
    )


def _delegation_from(record: pb.CutRecord) -> Delegation | None:
    cut = cut_from(record.cut)
    if cut is None:
        return None
    subtree, node, address, epoch = cut
    policy = LeasePolicy.SERVE if record.policy == pb.LEASE_POLICY_SERVE else LeasePolicy.FENCE
    return Delegation(subtree, node, address, record.incarnation, epoch, policy, None, 0)
