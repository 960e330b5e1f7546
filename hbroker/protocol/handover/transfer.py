"""What moves with a subtree, as the packets that carry it and as the new owner collects it (§5.4).

A record names one thing that there is: a subscription, a session, a retained message, a cut, a will, a part
that is gathering, what is left of a replay. A later record of the same thing replaces the one before; one
without its substance (an address, a payload) takes it back. The core alone knows what messages wait, and
which were seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar

from hbroker._native import filter_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.hierarchy.jurisdiction import Delegation
from hbroker.protocol.packets import cut_from, cut_of
from hbroker.protocol.subscriptions.owner.store import Subscription, subscription_from
from hbroker.subtree import depth, is_within, prefixes

__all__ = ["CHUNK", "Keeper", "ReceivedState", "Record", "cut_record", "transfer_packets"]

CHUNK: Final = 900
"""Bytes of records in one packet, so that it fits a datagram of 1,200.

A single larger record travels alone.
"""
MOST_RECORDS: Final = 10_000_000
"""Of each kind, in one handover: more would end a new owner for want of memory. What is over is counted."""

Record: TypeAlias = (
    bytes
    | pb.SubscriptionRecord
    | pb.SessionRecord
    | pb.CutRecord
    | pb.WillRecord
    | pb.GatheringRecord
    | pb.ReplayRecord
)
"""One thing that moves; bytes: a retained message, as a serialised `Publish`."""

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
    """Whoever keeps state of a node that moves with a subtree: its sessions, its wills."""

    def records(self, subtree: str) -> Iterable[pb.SessionRecord | pb.WillRecord]:
        """All that there is now and concerns a topic at or below the subtree."""

    def take_over(self, now: int, received: ReceivedState) -> None:
        """Takes in its part, just before this node serves the subtree, and before its subscriptions."""

    def sweep(self, given: Sequence[str] = ()) -> None:
        """A subtree is gone without a handover: as `moved`, and nobody has what was kept. `given`: the
        subtrees that are being handed over just now, with what is kept of them."""

    def moved(self, subtree: str) -> None:
        """The subtree has another owner now: forgets what concerns nothing that this node still owns."""


@dataclass(slots=True)
class ReceivedState:
    """What a new owner was handed so far."""

    subscriptions: dict[tuple[int, str, str], Subscription] = field(default_factory=dict)
    """By session, group and filter."""
    sessions: dict[int, pb.SessionRecord] = field(default_factory=dict)
    wills: dict[int, pb.WillRecord] = field(default_factory=dict)
    """By session."""
    ended_wills: set[int] = field(default_factory=set)
    """The sessions whose wills were published, or ended well, since their owner was lost."""
    cuts: dict[str, pb.CutRecord] = field(default_factory=dict)
    """By subtree."""
    gathering: dict[str, pb.GatheringRecord] = field(default_factory=dict)
    """By subtree."""
    replays: dict[tuple[int, str, int], pb.ReplayRecord] = field(default_factory=dict)
    """By session, filter and listener."""
    held: list[int] = field(default_factory=list)
    """Where the core holds what waits for sessions, and what was seen: in the order in which it waits."""
    most: int = MOST_RECORDS
    refused: int = 0
    """Records that there was no room for."""

    def take(self, transfer: pb.Transfer) -> None:
        """Adds what a packet holds, but for what the core keeps: messages, and which were seen."""
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
        """The subscription that a record is about; None: it ended, or makes no sense."""
        return self.subscriptions.get((record.session, record.group, record.filter))

    def is_away(self, session: int) -> bool:
        """Whether a session has no link, as far as is known."""
        known = self.sessions.get(session)
        return known is not None and known.HasField("away_us")

    def delegations(self, subtree: str) -> list[Delegation]:
        """The cuts below the subtree, without links and leases."""
        found = map(_delegation_from, self.cuts.values())
        return [d for d in found if d is not None and d.subtree != subtree and is_within(d.subtree, subtree)]

    def stands(self, delegation: Delegation) -> bool:
        """Whether a delegation that the new owner, of this name and address, had made before is held still
        (§5.4): it is named, or lies below what is: the old owner knows nothing of what is further down, be it
        the new owner's own or cut out of what another owner gave it."""
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
    """The records in packets that each fit a datagram, made one at a time."""
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
    """A delegation as it moves to its new parent."""
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
