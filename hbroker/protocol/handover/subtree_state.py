"""The state of a subtree at a node, whichever part of the node keeps it: collected at the source as records,
and taken in at the target (§5.4).

A record is about one thing: a subscription, a session, a retained message, a cut, a will, a part in recovery,
the rest of a replay. A later record of the same thing replaces the one before. A record without its substance
(an address, a payload, the time left) ends the thing. Only the native core knows the messages that wait, and
the message ids that were seen.

The cuts of the subtree go along: their owners stay, and only their parent changes. The target's own cuts are
named, too; what the target has delegated below them is its own affair. Not a part of this state: a smaller
subtree that another node granted to this node, with its cuts, messages and wills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias, TypeVar

from hbroker._native import filter_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.context import NodeContext
from hbroker.protocol.handover.recovery import Recovery
from hbroker.protocol.ownership.jurisdiction import Delegation, Grant
from hbroker.protocol.packets import cut_from, cut_of
from hbroker.protocol.sessions.subscription_store import MOST_QOS, Subscription, record_of, subscription_from
from hbroker.protocol.subscriptions.owner.subscriptions import OwnerSubscriptions
from hbroker.subtree import depth, is_within, prefixes

__all__ = [
    "CHUNK",
    "HandoverParticipant",
    "ReceivedState",
    "Record",
    "SubtreeState",
    "cut_record",
    "ended",
    "transfer_packets",
]

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


class HandoverParticipant(Protocol):
    """A part of a node whose state moves with a subtree: its sessions, its wills."""

    def records(self, subtree: str) -> Iterable[pb.SessionRecord | pb.WillRecord]:
        """The present records that concern topics at or below the subtree."""

    def install_state(self, now: int, received: ReceivedState) -> None:
        """Takes its records in, just before this node serves the subtree, and before the subscriptions."""

    def sweep(self, moving_subtrees: Sequence[str] = ()) -> None:
        """A grant ended without a handover, so no other node has this state. `moving_subtrees`: the subtrees
        that are being handed over, with their state."""

    def subtree_moved(self, subtree: str) -> None:
        """The subtree has another owner now: discards what concerns nothing that this node still owns."""


@dataclass(slots=True, eq=False)
class ReceivedState:
    """The records that a target has received so far, of one subtree."""

    subtree: str = ""
    subscriptions: dict[tuple[int, str, str], Subscription] = field(default_factory=dict)
    """By session, group and filter."""
    sessions: dict[int, pb.SessionRecord] = field(default_factory=dict)
    begun_at: dict[int, int] = field(default_factory=dict)
    """When their clients began sessions anew, by session."""
    wills: dict[int, pb.WillRecord] = field(default_factory=dict)
    """By session."""
    ended_wills: set[int] = field(default_factory=set)
    """The sessions whose wills were published or withdrawn since their owner was lost."""
    cuts: dict[str, pb.CutRecord] = field(default_factory=dict)
    """By subtree."""
    recovering: dict[str, pb.GatheringRecord] = field(default_factory=dict)
    """By subtree."""
    replays: dict[tuple[int, str, int], pb.ReplayRecord] = field(default_factory=dict)
    """By session, filter and listener."""
    retained: list[bytes] = field(default_factory=list)
    """Retained messages, and messages that clear a topic, in the order in which they take effect."""
    held: list[int] = field(default_factory=list)
    """Where the core holds the messages that wait for sessions, and the message ids that were seen, in the
    order in which they take effect."""
    most: int = MOST_RECORDS
    refused: int = 0
    """How many records found no room."""

    def add(self, transfer: pb.Transfer) -> None:
        """Adds the records of a packet, except those that the core takes: messages, and message ids."""
        for subscription in transfer.subscriptions:
            self._add_subscription(subscription)
        for session in transfer.sessions:
            self._replace(self.sessions, session.session, session, True)
        for will in transfer.wills:
            self._replace(self.wills, will.session, will, bool(will.publish))
            (self.ended_wills.discard if will.publish else self.ended_wills.add)(will.session)
        for cut in transfer.cuts:
            self._replace(self.cuts, cut.cut.subtree, cut, cut.cut.HasField("address"))
        for part in transfer.gathering:
            self._replace(self.recovering, part.subtree, part, bool(part.remaining_us))
        for replay in transfer.replays:
            key = replay.session, replay.filter, replay.listener
            self._replace(self.replays, key, replay, filter_is_valid(replay.filter))
        room = max(0, self.most - len(self.retained))
        self.retained += transfer.retained[:room]
        self.refused += max(0, len(transfer.retained) - room)

    def subscription_of(self, record: pb.SubscriptionRecord) -> Subscription | None:
        """The subscription of a record; None: it has ended, or is not valid."""
        return self.subscriptions.get((record.session, record.group, record.filter))

    def is_offline(self, session: int) -> bool:
        """Whether a session is offline, according to its record."""
        known = self.sessions.get(session)
        return known is not None and known.HasField("offline_us")

    def delegations(self, subtree: str) -> list[Delegation]:
        """The cuts below the subtree, without links and leases."""
        found = map(_delegation_from, self.cuts.values())
        return [d for d in found if d is not None and d.subtree != subtree and is_within(d.subtree, subtree)]

    def confirms(self, delegation: Delegation) -> bool:
        """Whether an earlier delegation of the target still exists (§5.4, old cuts): RECORDS name it under
        the same epoch, or it lies below a subtree that they name. The source does not know what lies further
        down, which the target has delegated itself, or cut out of what another owner gave it."""
        for prefix in prefixes(delegation.subtree, depth(delegation.subtree)):
            record = self.cuts.get(prefix)
            named = None if record is None else _delegation_from(record)
            if named is not None and (named.subtree != delegation.subtree or named.epoch == delegation.epoch):
                return True
        return False

    def _add_subscription(self, record: pb.SubscriptionRecord) -> None:
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


class SubtreeState:
    """The state that moves with a subtree.

    `inherit(now, delegations)` makes the cuts of a subtree this node's own.
    """

    def __init__(
        self,
        context: NodeContext,
        owner_subscriptions: OwnerSubscriptions,
        recovery: Recovery,
        inherit: Callable[[int, Sequence[Delegation]], None],
        participants: Sequence[HandoverParticipant],
    ) -> None:
        self._own = (context.settings.name, context.settings.address, context.incarnation)
        self._core = context.core
        self._clock = context.clock
        self._jurisdiction = context.jurisdiction
        self._owner_subscriptions = owner_subscriptions
        self._recovery = recovery
        self._inherit = inherit
        self._participants = participants
        self._receiving: list[ReceivedState] = []
        """Of the handovers to this node that have not committed. They may overlap: a child hands back a
        subtree out of which this node has asked for a part."""

    # Give

    def subscription_records(self, subtree: str) -> Iterator[Record]:
        """The subscriptions that touch the subtree: there may be many, and changes of them are sent as they
        happen."""
        return map(self._record, list(self._owner_subscriptions.subscription_store.touching(subtree)))

    def other_records(
        self, subtree: str, *, is_former_owner: bool = False
    ) -> dict[tuple[str, str | int], Record]:
        """All other records, each by its key. A later result, compared with an earlier one, shows what has
        changed.

        `is_former_owner`: as in `HandoverSource`.
        """
        found: dict[tuple[str, str | int], Record] = {}
        cuts = [
            *self._jurisdiction.cuts_moving_with(subtree),
            *map(self._as_cut, self._jurisdiction.grants_left_within(subtree)),
        ]
        own = self._jurisdiction.delegation_of(subtree) if is_former_owner else None
        for delegation in cuts if own is None else [own, *cuts]:
            found["cut", delegation.subtree] = cut_record(delegation)
        for participant in self._participants:
            for record in participant.records(subtree):
                found[type(record).__name__, record.session] = record
        for part in self._recovery.records(subtree):
            found["gathering", part.subtree] = part
        return found

    def replays(self, subtree: str) -> Iterator[pb.ReplayRecord]:
        """The retained messages of the subtree that are still to be sent to sessions (§7.6)."""
        for session, filter, qos, listener, first in self._core.replays(subtree):
            yield pb.ReplayRecord(
                session=session, filter=filter, qos=pb.Qos.Name(qos), listener=listener, first=first
            )

    def subtrees_granted_below(self, subtree: str) -> list[str]:
        """The smaller subtrees that other nodes granted: they are no part of a subtree that moves."""
        return self._jurisdiction.subtrees_granted_below(subtree)

    # Take

    def begin_receiving(self, subtree: str) -> ReceivedState:
        """A handover to this node begins. Returns where its records go, until `install_state` or
        `discard`."""
        received = ReceivedState(subtree)
        self._receiving.append(received)
        return received

    def prepare(self, transfer: pb.Transfer, received: ReceivedState) -> None:
        """Makes subscriptions as they arrive, so that little is left to do while nobody serves them.

        They match nothing until this node serves the subtree. An age counts from when its record arrives.
        """
        for session in transfer.sessions:
            if session.begun_by and session.session in received.sessions:
                received.begun_at[session.session] = self._clock() - session.begun_us
        for record in transfer.subscriptions:
            subscription = received.subscription_of(record)
            if subscription is None:
                self._owner_subscriptions.withdraw(record.session, (record.group, record.filter))
            elif not received.is_offline(record.session):
                self._owner_subscriptions.prepare(subscription)

    def discard(self, received: ReceivedState) -> None:
        """A handover failed before COMMIT, and the source serves on: removes what `prepare` made. What
        another handover has brought, too, stays."""
        self._receiving.remove(received)
        others = self._receiving
        for key, subscription in received.subscriptions.items():
            if not any(key in other.subscriptions for other in others):
                self._owner_subscriptions.withdraw(subscription.session, subscription.key)

    def install_state(self, now: int, received: ReceivedState) -> None:
        """Takes the received state in, just before this node serves the subtree.

        If this node takes it back from a child, the child's retained messages count, and not those that this
        node still has because it has not got DONE.
        """
        subtree = received.subtree
        self._receiving.remove(received)
        if self._jurisdiction.delegation_of(subtree) is not None:
            self.drop_retained(subtree)
        received.refused += self._core.take_retained(received.retained)
        received.retained = []
        self._inherit(now, received.delegations(subtree))
        self._recovery.install_state(now, subtree, received.recovering.values())
        self._owner_subscriptions.resume(subtree, received)
        for participant in self._participants:
            participant.install_state(now, received)
        self._owner_subscriptions.install_state(subtree, list(received.subscriptions.values()))
        for held in received.held:
            self._core.install(held)
        for replay in received.replays.values():
            qos = min(replay.qos, MOST_QOS)
            self._core.send_retained(
                replay.session, replay.filter, qos, replay.listener, subtree, replay.first
            )

    def end_lease(self, subtree: str, until: int | None, moving_subtrees: Sequence[str]) -> None:
        """The lease of a subtree ended, at `until` at the latest. The queues of persistent sessions, and
        wills, stay (§5.6). `moving_subtrees`: as in `sweep`."""
        self._owner_subscriptions.end_lease(subtree, until, moving_subtrees)
        for participant in self._participants:
            participant.sweep(moving_subtrees)

    def sweep(self, moving_subtrees: Sequence[str]) -> None:
        """A grant ended without a handover: discards what concerns nothing that is left. `moving_subtrees`:
        the subtrees that are being handed over; what touches them stays and goes along."""
        self._owner_subscriptions.sweep(moving_subtrees)
        for participant in self._participants:
            participant.sweep(moving_subtrees)

    def subtree_moved(self, subtree: str) -> None:
        """The target serves the subtree."""
        self.drop_retained(subtree)
        for participant in self._participants:
            participant.subtree_moved(subtree)

    def drop_retained(self, subtree: str) -> None:
        """Another node has the subtree's retained messages. A source keeps them until DONE, as all that
        waits for sessions. Those that are this node's again stay."""
        if not isinstance(self._jurisdiction.lookup(subtree), Grant):
            expected = self._jurisdiction.subtrees_expected_below(subtree)
            self._core.drop_retained(subtree, [*self.subtrees_granted_below(subtree), *expected])

    def _as_cut(self, grant: Grant) -> Delegation:
        """A grant that this node keeps, as a cut below the subtree that it hands over: no other node will
        name it."""
        policy = LeasePolicy.SERVE if grant.until is None else LeasePolicy.FENCE
        return Delegation(grant.subtree, *self._own, grant.epoch, policy, None, 0)

    def _record(self, subscription: Subscription) -> pb.SubscriptionRecord:
        """A subscription with its client's present address (§4.4), because the target opens a link there."""
        session = self._owner_subscriptions.sessions.get(subscription.session)
        link = None if session is None else session.link
        address = None if link is None else self._core.peer_of(link)
        if session is not None:
            subscription = replace(subscription, rights=session.rights)
        return record_of(subscription if address is None else replace(subscription, address=address))


def ended(key: tuple[str, str | int]) -> Record | None:
    """A record that ends the thing with this key; None: its earlier record does no harm."""
    kind, name = key
    match kind, name:
        case "cut", str():
            return pb.CutRecord(cut=pb.Cut(subtree=name))
        case "WillRecord", int():
            return pb.WillRecord(session=name)
        case "gathering", str():
            return pb.GatheringRecord(subtree=name)
    return None
