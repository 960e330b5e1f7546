"""The state of a subtree at a node, whichever part of the node keeps it: collected at the source, taken in at
the target.

The cuts of the subtree go along (§5.4): their owners stay, and only their parent changes. The target's own
cuts are named, too; what the target has delegated below them is its own affair. Not a part of this state: a
smaller subtree that another node granted to this node, with its cuts, messages and wills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.core import NodeCore
from hbroker.protocol.handover.recovery import Recovery
from hbroker.protocol.handover.transfer import Keeper, ReceivedState, Record, cut_record
from hbroker.protocol.ownership.jurisdiction import Delegation, Grant, Jurisdiction
from hbroker.protocol.packets import Address
from hbroker.protocol.sessions.subscription_store import MOST_QOS, Subscription, record_of
from hbroker.protocol.subscriptions.owner.subscriptions import OwnerSubscriptions

__all__ = ["SubtreeState", "ended"]


class SubtreeState:
    """The state that moves with a subtree.

    `own`: this node's name, address and incarnation. `inherit(now, delegations)` makes the cuts of a subtree
    this node's own.
    """

    def __init__(
        self,
        own: tuple[str, Address, int],
        core: NodeCore,
        jurisdiction: Jurisdiction,
        owner_subscriptions: OwnerSubscriptions,
        gathering: Recovery,
        inherit: Callable[[int, Sequence[Delegation]], None],
        keepers: Sequence[Keeper] = (),
    ) -> None:
        self._own = own
        self._core = core
        self._jurisdiction = jurisdiction
        self._owner_subscriptions = owner_subscriptions
        self._recovery = gathering
        self._inherit = inherit
        self._keepers = keepers

    # Give

    def slow(self, subtree: str) -> Iterator[Record]:
        """The subscriptions that touch the subtree: there may be many, and changes of them are sent as they
        happen."""
        return map(self._record, list(self._owner_subscriptions.subscribers.touching(subtree)))

    def quick(self, subtree: str, *, is_heirs: bool = False) -> dict[tuple[str, str | int], Record]:
        """All other records, each by its key. A later result, compared with an earlier one, shows what has
        changed.

        `is_heirs`: as in `HandoverSource`.
        """
        found: dict[tuple[str, str | int], Record] = {}
        cuts = [
            *self._jurisdiction.cuts_of(subtree),
            *map(self._as_cut, self._jurisdiction.left_within(subtree)),
        ]
        own = self._jurisdiction.delegation_of(subtree) if is_heirs else None
        for delegation in cuts if own is None else [own, *cuts]:
            found["cut", delegation.subtree] = cut_record(delegation)
        for keeper in self._keepers:
            for record in keeper.records(subtree):
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

    def held_below(self, subtree: str) -> list[str]:
        """The smaller subtrees that other nodes granted: they are no part of a subtree that moves."""
        return self._jurisdiction.held_below(subtree)

    # Take

    def prepare(self, transfer: pb.Transfer, received: ReceivedState) -> None:
        """Makes subscriptions as they arrive, so that little is left to do while nobody serves them.

        They match nothing until this node serves the subtree.
        """
        for record in transfer.subscriptions:
            subscription = received.subscription_of(record)
            if subscription is None:
                self._owner_subscriptions.withdraw(record.session, (record.group, record.filter))
            elif not received.is_away(record.session):
                self._owner_subscriptions.prepare(subscription)

    def withdraw(self, received: ReceivedState) -> None:
        """Removes what `prepare` made, because the handover failed."""
        for subscription in received.subscriptions.values():
            self._owner_subscriptions.withdraw(subscription.session, subscription.key)

    def take_over(self, now: int, subtree: str, received: ReceivedState) -> None:
        """Takes the received state in, just before this node serves the subtree."""
        self._inherit(now, received.delegations(subtree))
        self._recovery.take_over(now, subtree, received.gathering.values())
        self._owner_subscriptions.resume(now, subtree, received)
        for keeper in self._keepers:
            keeper.take_over(now, received)
        self._owner_subscriptions.take_over(subtree, list(received.subscriptions.values()))
        for held in received.held:
            self._core.install(held)
        for replay in received.replays.values():
            qos = min(replay.qos, MOST_QOS)
            self._core.send_retained(
                replay.session, replay.filter, qos, replay.listener, subtree, replay.first
            )

    def end_lease(self, subtree: str, until: int | None, given: Sequence[str]) -> None:
        """The lease of a subtree ended, at `until` at the latest. The queues of persistent sessions, and
        wills, stay (§5.6). `given`: as in `sweep`."""
        self._owner_subscriptions.end_lease(subtree, until, given)
        for keeper in self._keepers:
            keeper.sweep(given)

    def sweep(self, given: Sequence[str]) -> None:
        """A grant ended without a handover: discards what concerns nothing that is left. `given`: the
        subtrees that are being handed over; what touches them stays and goes along."""
        self._owner_subscriptions.sweep(given)
        for keeper in self._keepers:
            keeper.sweep(given)

    def moved(self, subtree: str) -> None:
        """The target serves the subtree."""
        for keeper in self._keepers:
            keeper.moved(subtree)

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
