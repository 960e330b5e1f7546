"""The defects: what each takes out of the product, and which invariant then breaks.

One in the control takes the place of a method. One in the core is compiled into a test build alone
(`hbroker/native/src/broken.rs`), and chosen by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol import node, storage, timers
from hbroker.protocol.handover import handover, recovery
from hbroker.protocol.handover.subtree_state import Record
from hbroker.protocol.hierarchy.channels import Channels
from hbroker.protocol.hierarchy.child import requested_subtrees
from hbroker.protocol.hierarchy.parent import delegations, parent
from hbroker.protocol.hierarchy.parent.delegations import Child
from hbroker.protocol.hierarchy.parent.parent import Applicant
from hbroker.protocol.ownership import ended_leases
from hbroker.protocol.ownership.jurisdiction import Grant, Jurisdiction
from hbroker.protocol.sessions import session_table
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.protocol.subscriptions.client import owners, subscription
from hbroker.protocol.subscriptions.client.owner import Event, SubscriptionOwner
from hbroker.protocol.subscriptions.owner import subscriptions
from hbroker.protocol.wills import session_wills
from hbroker.runtime.node.state_files import NodeStateFiles
from hbroker.sim.network.drawing import draw
from hbroker.sim.network.hosts import Host, NodeHost
from hbroker.sim.network.invariants import Invariant
from hbroker.sim.network.plan import Plan
from hbroker.sim.network.storage.files import NodeFiles
from hbroker.storage import record_file, store
from hbroker.storage.disk import File
from hbroker.storage.record_format import Reading
from tests.defects import tears

__all__ = ["CONTROL", "COPYING", "CORE", "VARIANTS", "Variant"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A defective product: in the control `owner.method` is replaced by what `make` makes of it; in the core
    it is `defect`. `plan`: what is tried with each seed."""

    name: str
    breaks: Invariant
    owner: Any = None
    method: str = ""
    make: Callable[[Callable[..., Any]], Any] | None = None
    defect: str = ""
    plan: Callable[[int], Plan] = draw

    def patch(self) -> tuple[Any, str, Any]:
        """What to set to what, for a defect of the control."""
        assert self.make is not None
        return self.owner, self.method, self.make(getattr(self.owner, self.method))

    def apply(self) -> None:
        """Makes this process's product defective, for good."""
        if self.defect:
            os.environ["HBROKER_BROKEN"] = self.defect
        else:
            setattr(*self.patch())


def _end_unknown_to_core(hold: Callable[..., None]) -> Callable[..., None]:
    def broken(self: Jurisdiction, grant: Grant) -> None:
        hold(self, grant)
        self._core.grant(grant.subtree, grant.epoch, grant.serving, None)

    return broken


def _whatever_it_proves(_: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, link, body: not isinstance(body, pb.Authenticated)


def _always_one(_: Callable[..., int]) -> Callable[..., int]:
    return lambda self, link: 1


def _stands_still(clock: Callable[[Host], int]) -> Callable[[Host], int]:
    return lambda self: clock(self) - self.suspended_us


def _at_once(schedule: Callable[..., None]) -> Callable[..., None]:
    def broken(self: delegations.Delegations, child: Child) -> None:
        schedule(self, child)
        delegation = child.delegation
        if delegation.policy is LeasePolicy.FENCE:
            self._ends.set(delegation.subtree, delegation.until - timers.LEASE_DRIFT)

    return broken


def _as_soon_as_the_root_answered(_: object) -> property:
    return property(lambda self: self.entry is not None and self.entry.has_answered)


def _only_said(_: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, session, filter: True


def _asked_again(_: Callable[..., None]) -> Callable[..., None]:
    def broken(self: owners.SubscriptionOwners, now: int, owner: SubscriptionOwner) -> None:
        owner.machine.handle(Event.ACTIVATE)
        owner.failures = 0
        self._doubt(now, owner)

    return broken


def _whatever_its_epoch(admit: Callable[..., None]) -> Callable[..., None]:
    def broken(
        self: parent.ParentRole, now: int, link: int, join: pb.Join, applicant: Applicant, grant: Grant
    ) -> None:
        child = self._delegations.children.get(applicant.subtree)
        if child is not None and applicant.is_holder(child.delegation):
            self._renew(now, child, link, join, applicant, grant)
        else:
            admit(self, now, link, join, applicant, grant)

    return broken


def _without_retained(
    transfer_packets: Callable[..., Iterable[pb.Transfer]],
) -> Callable[..., Iterable[pb.Transfer]]:
    def broken(records: Iterable[Record]) -> Iterable[pb.Transfer]:
        return transfer_packets(record for record in records if not isinstance(record, bytes))

    return broken


def _without_gone(hold: Callable[..., None]) -> Callable[..., None]:
    def broken(self: handover.HandoverTarget, transfer: pb.Transfer) -> None:
        transfer.ClearField("gone")
        hold(self, transfer)

    return broken


def _without_queued(difference: Callable[..., Iterable[pb.Transfer]]) -> Callable[..., Iterable[pb.Transfer]]:
    def broken(self: handover.HandoverSource) -> Iterable[pb.Transfer]:
        for transfer in difference(self):
            transfer.ClearField("queued")
            yield transfer

    return broken


def _nothing(_: Callable[..., None]) -> Callable[..., None]:
    return lambda *arguments: None


def _forgets_first(hand_back: Callable[..., None]) -> Callable[..., None]:
    def broken(self: requested_subtrees.RequestedSubtrees, now: int, subtree: str) -> None:
        self._remember([claim for claim in self.subtrees if claim != subtree])
        hand_back(self, now, subtree)

    return broken


def _at_any_time(_: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, child: True


def _before_it_is_synced(_: Callable[..., bool]) -> Callable[..., bool]:
    def broken(self: storage.AfterSync, waiting: object, act: Callable[[], object], link: int | None) -> bool:
        act()
        return True

    return broken


def _whatever_the_disk_says(flush: Callable[..., bool]) -> Callable[..., bool]:
    def broken(self: store.Store) -> bool:
        flush(self)
        self.durable, self.fault = self.written, None
        return True

    return broken


def _up_to_the_first_tear(read: Callable[..., Reading]) -> Callable[..., Reading]:
    def broken(data: bytes, file_id: int) -> Reading:
        found = read(data, file_id)
        if found.damage:
            found = read(data[: found.damage[0][0]], file_id)
        found.end, found.torn = len(data), 0
        return found

    return broken


def _with_one_write(_: Callable[..., int]) -> Callable[..., int]:
    def broken(file: File, data: bytes) -> int:
        file.append(data)
        return len(data)

    return broken


def _while_the_disk_works(touch: Callable[..., None]) -> Callable[..., None]:
    def broken(self: store.Store) -> None:
        if self.fault is None:
            touch(self)

    return broken


def _by_the_wall_clock(restart: Callable[..., NodeHost]) -> Callable[..., NodeHost]:
    def broken(self: NodeHost, *, clock_step_us: int = 0, **wanted: Any) -> NodeHost:
        files, ahead_us = self.files, self.unix_offset_us + clock_step_us

        def opened() -> NodeStateFiles:
            memory = NodeFiles.open(files)
            instant = memory.store._instant
            memory.store._instant = lambda: replace(instant(), us=instant().us + ahead_us)
            return memory

        files.open = opened  # type: ignore[method-assign]
        return restart(self, clock_step_us=clock_step_us, **wanted)

    return broken


def _by_the_clock_alone(_: Callable[..., int]) -> Callable[..., int]:
    return lambda self, now, grant: self._epoch_at(now)


def _zero(_: Callable[..., int]) -> Callable[..., int]:
    return lambda self, now: 0


def _never_kept(open: Callable[..., bool]) -> Callable[..., bool]:
    def broken(self: session_table.Sessions, session: session_table.Session) -> bool:
        expiry, session.expiry_s = session.expiry_s, 0
        is_open = open(self, session)
        session.expiry_s = expiry
        return is_open

    return broken


def _without_bounds(open: Callable[..., bool]) -> Callable[..., bool]:
    def broken(self: session_table.Sessions, session: session_table.Session) -> bool:
        session.queue_messages = session.queue_bytes = 0
        return open(self, session)

    return broken


def _never(_: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, filter: False


def _always(_: object) -> property:
    return property(lambda self: True)


def _shared_by_nobody(add: Callable[..., None]) -> Callable[..., None]:
    def broken(self: subscriptions.OwnerSubscriptions, subscription: Subscription) -> None:
        add(self, subscription)
        session, filter = subscription.session, subscription.filter
        if subscription.group:
            self._core.unsubscribe(session, filter, subscription.group)
            self._core.subscribe(session, filter, subscription.qos)

    return broken


def _due_at_once(break_off: Callable[..., None]) -> Callable[..., None]:
    return lambda self, will, due: break_off(self, will, self._clock())


KEPT: Final = (
    Variant(
        "an owner keeps nothing for a session that is away",
        Invariant.NOTHING_LOST,
        session_table.Sessions,
        "open",
        _never_kept,
    ),
    Variant(
        "a lease's end drops what waits for sessions that are away",
        Invariant.NOTHING_LOST,
        ended_leases.EndedLeases,
        "touch",
        _never,
    ),
    Variant(
        "a client takes every subscription for one that it had before",
        Invariant.RESUMED,
        subscription.Subscription,
        "is_resumed",
        _always,
    ),
    Variant(
        "an owner keeps what waits without the bounds that were asked for",
        Invariant.QUEUES,
        session_table.Sessions,
        "open",
        _without_bounds,
    ),
    Variant(
        "every member of a shared group gets each message",
        Invariant.SHARED,
        subscriptions.OwnerSubscriptions,
        "_add",
        _shared_by_nobody,
    ),
    Variant(
        "a will is not published",
        Invariant.WILLS,
        session_wills.Wills,
        "handle_link_down",
        _nothing,
    ),
    Variant(
        "a will does not wait",
        Invariant.WILLS,
        session_wills.Wills,
        "_break_off",
        _due_at_once,
    ),
)
"""Defects of the control, in what it does for sessions that are kept, shared groups and wills."""

COPYING: Final = (
    Variant(
        "a new owner keeps copies of what was answered since",
        Invariant.NOTHING_DOUBLED,
        handover.HandoverTarget,
        "_hold",
        _without_gone,
    ),
    Variant(
        "a handover leaves behind what came while it was copied",
        Invariant.NOTHING_LOST,
        handover.HandoverSource,
        "_difference",
        _without_queued,
    ),
)
"""Defects of the control while it copies what waits."""

CONTROL: Final = (
    *KEPT,
    *COPYING,
    Variant(
        "the core is not told when a lease ends",
        Invariant.ONE_OWNER,
        Jurisdiction,
        "hold",
        _end_unknown_to_core,
    ),
    Variant(
        "a node's clock stands still while its machine is suspended",
        Invariant.ONE_OWNER,
        Host,
        "clock",
        _stands_still,
    ),
    Variant(
        "what nodes say to each other is believed without a proof",
        Invariant.ONE_OWNER,
        Channels,
        "admits",
        _whatever_it_proves,
    ),
    Variant(
        "a parent proves every link with the same nonce",
        Invariant.PROVED,
        Channels,
        "_own_nonce",
        _always_one,
    ),
    Variant(
        "a parent takes back without waiting for clocks that differ",
        Invariant.ONE_OWNER,
        delegations.Delegations,
        "_schedule",
        _at_once,
    ),
    Variant(
        "a parent forgets what it delegated",
        Invariant.ONE_OWNER,
        delegations.Delegations,
        "restore",
        _nothing,
    ),
    Variant(
        "a parent gives a subtree away before it is on the disk to whom",
        Invariant.ONE_OWNER,
        delegations.Delegations,
        "_is_noted",
        _at_any_time,
    ),
    Variant(
        "a node says what rests on its files before they are synced",
        Invariant.NOTHING_LOST,
        storage.AfterSync,
        "_wait",
        _before_it_is_synced,
        plan=tears.by_a_lost_subscription,
    ),
    Variant(
        "a node takes what it wrote for synced",
        Invariant.ONE_OWNER,
        record_file.RecordFile,
        "sync",
        _nothing,
    ),
    Variant(
        "a node takes what a full disk refused for written",
        Invariant.ONE_OWNER,
        store.Store,
        "flush",
        _whatever_the_disk_says,
    ),
    Variant(
        "a node takes a short write for a whole one",
        Invariant.ONE_OWNER,
        record_file,
        "write_all",
        _with_one_write,
        plan=tears.by_a_full_disk,
    ),
    Variant(
        "a node takes the first torn record of a file for its end, and leaves it there",
        Invariant.ONE_OWNER,
        record_file,
        "read_records",
        _up_to_the_first_tear,
        plan=tears.by_a_late_sync,
    ),
    Variant(
        "a node tells by the wall clock how long it was away",
        Invariant.NOTHING_LOST,
        NodeHost,
        "restart",
        _by_the_wall_clock,
    ),
    Variant(
        "a parent grants under the epoch of its clock",
        Invariant.EPOCHS_RISE,
        parent.ParentRole,
        "_next_epoch",
        _by_the_clock_alone,
    ),
    Variant(
        "a node does not note that it lives while its disk fails",
        Invariant.NOTHING_LOST,
        store.Store,
        "touch",
        _while_the_disk_works,
    ),
    Variant(
        "who is waited for is forgotten when a subtree moves",
        Invariant.NOTHING_LOST,
        recovery.Recovery,
        "take_over",
        _nothing,
    ),
    Variant(
        "epochs begin anew with each run of a node",
        Invariant.EPOCHS_RISE,
        node.Node,
        "_epoch_at",
        _zero,
    ),
    Variant(
        "a node forgets a claim before its parent has the subtree",
        Invariant.CLAIMED,
        requested_subtrees.RequestedSubtrees,
        "hand_back",
        _forgets_first,
    ),
    Variant(
        "a parent takes a restarted child for the one that it was, whatever its epoch",
        Invariant.RECOVERS,
        parent.ParentRole,
        "_admit",
        _whatever_its_epoch,
    ),
    Variant(
        "a new owner inherits no subscriptions",
        Invariant.COMPLETE,
        subscriptions.OwnerSubscriptions,
        "_make",
        _nothing,
    ),
    Variant(
        "a handover leaves out the subscriptions made meanwhile",
        Invariant.COMPLETE,
        handover.HandoverSource,
        "follow",
        _nothing,
    ),
    Variant(
        "a handover leaves out the retained messages",
        Invariant.RETAINED,
        handover,
        "transfer_packets",
        _without_retained,
    ),
    Variant(
        "a subscription is complete when the root has answered",
        Invariant.COMPLETE,
        subscription.Subscription,
        "is_complete",
        _as_soon_as_the_root_answered,
    ),
    Variant(
        "an owner keeps subscriptions that have ended",
        Invariant.BOUNDED,
        subscriptions.OwnerSubscriptions,
        "_remove",
        _only_said,
    ),
    Variant(
        "a client asks again for what it has",
        Invariant.QUIET,
        owners.SubscriptionOwners,
        "_activate",
        _asked_again,
    ),
)
"""Defects of the control."""

CORE: Final = (
    Variant(
        "an owner acknowledges before it distributes", Invariant.NOTHING_LOST, defect="AcknowledgesEarly"
    ),
    Variant(
        "nobody recognises a message that comes again",
        Invariant.NOTHING_DOUBLED,
        defect="ForgetsMessageIds",
    ),
    Variant("no delivery waits for the one before it", Invariant.ORDER, defect="KeepsNoOrder"),
    Variant("what is lost is not sent again", Invariant.RECOVERS, defect="SendsOnce"),
    Variant("a client learns nothing from a refusal", Invariant.RECOVERS, defect="LearnsNothing"),
    Variant(
        "a link goes on with whatever incarnation its peer has",
        Invariant.RECOVERS,
        defect="IgnoresIncarnation",
    ),
    Variant("a message is whole when its last part has come", Invariant.INTACT, defect="EndsWithLastPart"),
    Variant(
        "what a stalled subscriber answers is not counted", Invariant.ADDS_UP, defect="ForgetsLateAnswers"
    ),
    Variant("what expired while it waited is sent", Invariant.EXPIRES, defect="SendsTheDead"),
    Variant(
        "a queue that is full drops its oldest, and acknowledges the rest",
        Invariant.KEEPS,
        defect="DropsWhatWaits",
    ),
    Variant("a subscriber that answers anything is waited for", Invariant.PACED, defect="TakesAnyAnswer"),
    Variant(
        "an owner takes messages under whatever publisher id they come",
        Invariant.GENUINE,
        defect="TakesAnyPublisher",
    ),
)
"""Defects of the core, which a test build of it can have."""

VARIANTS: Final = {variant.name: variant for variant in (*CONTROL, *CORE)}
