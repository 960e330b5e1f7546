"""The defects: each removes a safeguard of the product, and names the invariant that must then break.

A defect of the control replaces a method. A defect of the core is compiled only into a test build
(`hbroker/native/src/broken.rs`), and is selected by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol import storage, timers
from hbroker.protocol.handover import phases, recovery
from hbroker.protocol.handover.subtree_state import Record
from hbroker.protocol.hierarchy.channels import Channels
from hbroker.protocol.hierarchy.child import subtree_claims
from hbroker.protocol.hierarchy.parent import delegations, join_responder
from hbroker.protocol.hierarchy.parent.delegation import Child, DelegationEvent
from hbroker.protocol.hierarchy.parent.join_responder import Applicant
from hbroker.protocol.ownership import ended_leases, epoch_clock
from hbroker.protocol.ownership.jurisdiction import Grant, Jurisdiction
from hbroker.protocol.sessions import session_table
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.protocol.subscriptions.client import owners, subscription
from hbroker.protocol.subscriptions.client.subscription import OwnerEvent, SubscriptionOwner
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
from hbroker.storage.record_format import ParsedRecords
from tests.defects import power_cuts, returns, torn_writes

__all__ = ["CONTROL", "COPYING", "CORE", "VARIANTS", "Variant"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A defective product. A defect of the control replaces `owner.method` by the result of `make`. A defect
    of the core is named by `defect`. `plan`: the plan of each seed."""

    name: str
    breaks: Invariant
    owner: Any = None
    method: str = ""
    make: Callable[[Callable[..., Any]], Any] | None = None
    defect: str = ""
    plan: Callable[[int], Plan] = draw

    def patch(self) -> tuple[Any, str, Any]:
        """The owner, the name of the method, and its replacement, for a defect of the control."""
        assert self.make is not None
        return self.owner, self.method, self.make(getattr(self.owner, self.method))

    def apply(self) -> None:
        """Makes the product of this process defective until the process ends."""
        if self.defect:
            os.environ["HBROKER_BROKEN"] = self.defect
        else:
            setattr(*self.patch())


def _without_lease_end_in_core(set_grant: Callable[..., None]) -> Callable[..., None]:
    def broken(self: Jurisdiction, grant: Grant) -> None:
        set_grant(self, grant)
        self._core.grant(grant.subtree, grant.epoch, grant.serving, None)

    return broken


def _without_stored_queues(restore_saved: Callable[..., Any]) -> Callable[..., Any]:
    class Core:
        """A core that knows of no stored queue."""

        def __init__(self, core: Any) -> None:
            self._core = core

        def restore_queue(self, session: int) -> int:
            return 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self._core, name)

    def broken(self: subscriptions.OwnerSubscriptions, *args: Any) -> Any:
        core = self._core
        self._core = Core(core)
        try:
            return restore_saved(self, *args)
        finally:
            self._core = core

    return broken


def _without_proof(_: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, link, body: not isinstance(body, pb.Authenticated)


def _constant_nonce(_: Callable[..., int]) -> Callable[..., int]:
    return lambda self, link: 1


def _clock_without_suspension(clock: Callable[[Host], int]) -> Callable[[Host], int]:
    return lambda self: clock(self) - self.suspended_us


def _reclaim_without_drift(schedule: Callable[..., None]) -> Callable[..., None]:
    def broken(self: delegations.Delegations, child: Child) -> None:
        schedule(self, child)
        delegation = child.delegation
        if delegation.policy is LeasePolicy.FENCE:
            self._ends.set(delegation.subtree, delegation.until - timers.LEASE_DRIFT)

    return broken


def _done_by_leave(handle_leave: Callable[..., None]) -> Callable[..., None]:
    def broken(self: delegations.Delegations, link: int, leave: pb.Leave) -> None:
        child = self.children[leave.subtree]
        if child.state_machine.accepts(DelegationEvent.DONE):
            self._abandon(child)
            self._handle_done(child)
        handle_leave(self, link, leave)

    return broken


def _complete_after_root(_: object) -> property:
    return property(lambda self: self.root_owner is not None and self.root_owner.has_answered)


def _only_reported(_: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, session, filter: True


def _subscribe_again(_: Callable[..., None]) -> Callable[..., None]:
    def broken(self: owners.SubscriptionOwners, now: int, owner: SubscriptionOwner) -> None:
        owner.state_machine.handle(OwnerEvent.ACTIVATE)
        owner.failures = 0
        self._retry_if_unaccounted(now, owner)

    return broken


def _ignore_epoch(admit: Callable[..., None]) -> Callable[..., None]:
    def broken(
        self: join_responder.JoinResponder,
        now: int,
        link: int,
        join: pb.Join,
        applicant: Applicant,
        grant: Grant,
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


def _without_removals(import_records: Callable[..., None]) -> Callable[..., None]:
    def broken(self: phases.HandoverTarget, transfer: pb.Transfer) -> None:
        transfer.ClearField("gone")
        import_records(self, transfer)

    return broken


def _without_queued(difference: Callable[..., Iterable[pb.Transfer]]) -> Callable[..., Iterable[pb.Transfer]]:
    def broken(self: phases.HandoverSource) -> Iterable[pb.Transfer]:
        for transfer in difference(self):
            transfer.ClearField("queued")
            yield transfer

    return broken


def _do_nothing(_: Callable[..., None]) -> Callable[..., None]:
    return lambda *arguments: None


def _forget_before_hand_back(hand_back: Callable[..., None]) -> Callable[..., None]:
    def broken(self: subtree_claims.SubtreeClaims, now: int, subtree: str) -> None:
        self._context.node.storage.save_claims([claim for claim in self.subtrees if claim != subtree])
        hand_back(self, now, subtree)

    return broken


def _always_noted(_: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, child: True


def _act_before_sync(_: Callable[..., bool]) -> Callable[..., bool]:
    def broken(self: storage.AfterSync, waiting: object, act: Callable[[], object], link: int | None) -> bool:
        act()
        return True

    return broken


def _ignore_disk_error(flush: Callable[..., bool]) -> Callable[..., bool]:
    def broken(self: store.Store) -> bool:
        flush(self)
        self.durable, self.fault = self.written, None
        return True

    return broken


def _stop_at_first_torn_record(read: Callable[..., ParsedRecords]) -> Callable[..., ParsedRecords]:
    def broken(data: bytes, file_id: int) -> ParsedRecords:
        found = read(data, file_id)
        if found.damage:
            found = read(data[: found.damage[0][0]], file_id)
        found.end, found.torn = len(data), 0
        return found

    return broken


def _write_once(_: Callable[..., int]) -> Callable[..., int]:
    def broken(file: File, data: bytes) -> int:
        file.append(data)
        return len(data)

    return broken


def _touch_without_fault(touch: Callable[..., None]) -> Callable[..., None]:
    def broken(self: store.Store) -> None:
        if self.fault is None:
            touch(self)

    return broken


def _downtime_by_wall_clock(restart: Callable[..., NodeHost]) -> Callable[..., NodeHost]:
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


def _wall_clock_after_restart(begin: Callable[..., None]) -> Callable[..., None]:
    return lambda self, now, last: begin(self, now, None)


def _epoch_from_zero(_: Callable[..., int]) -> Callable[..., int]:
    return lambda self, now: 0


def _without_expiry(open: Callable[..., bool]) -> Callable[..., bool]:
    def broken(self: session_table.SessionTable, session: session_table.Session) -> bool:
        expiry, session.expiry_s = session.expiry_s, 0
        is_open = open(self, session)
        session.expiry_s = expiry
        return is_open

    return broken


def _without_limits(open: Callable[..., bool]) -> Callable[..., bool]:
    def broken(self: session_table.SessionTable, session: session_table.Session) -> bool:
        session.queue_messages = session.queue_bytes = 0
        return open(self, session)

    return broken


def _always_false(_: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, filter: False


def _always_true(_: object) -> property:
    return property(lambda self: True)


def _without_group(add: Callable[..., None]) -> Callable[..., None]:
    def broken(self: subscriptions.OwnerSubscriptions, subscription: Subscription) -> None:
        add(self, subscription)
        session, filter = subscription.session, subscription.filter
        if subscription.group:
            self._core.unsubscribe(session, filter, subscription.group)
            self._core.subscribe(session, filter, subscription.qos)

    return broken


def _without_delay(break_off: Callable[..., None]) -> Callable[..., None]:
    return lambda self, will, due: break_off(self, will, self._context.clock())


SESSIONS: Final = (
    Variant(
        "an owner queues nothing for an offline session",
        Invariant.NOTHING_LOST,
        session_table.SessionTable,
        "open",
        _without_expiry,
    ),
    Variant(
        "the end of a lease drops the queues of offline sessions",
        Invariant.NOTHING_LOST,
        ended_leases.EndedLeases,
        "touches",
        _always_false,
    ),
    Variant(
        "a client takes every subscription for a resumed one",
        Invariant.RESUMED,
        subscription.ClientSubscription,
        "is_resumed",
        _always_true,
    ),
    Variant(
        "an owner ignores the limits of a session's queue",
        Invariant.QUEUES,
        session_table.SessionTable,
        "open",
        _without_limits,
    ),
    Variant(
        "every member of a shared subscription gets each message",
        Invariant.SHARED,
        subscriptions.OwnerSubscriptions,
        "_add",
        _without_group,
    ),
    Variant(
        "a will is not published",
        Invariant.WILLS,
        session_wills.SessionWills,
        "handle_link_down",
        _do_nothing,
    ),
    Variant(
        "a will is published without its delay",
        Invariant.WILLS,
        session_wills.SessionWills,
        "_break_off",
        _without_delay,
    ),
)
"""Defects of the control: kept sessions, shared subscriptions and wills."""

COPYING: Final = (
    Variant(
        "a new owner keeps copies of messages acknowledged during the handover",
        Invariant.NOTHING_DOUBLED,
        phases.HandoverTarget,
        "_import_records",
        _without_removals,
    ),
    Variant(
        "a handover leaves out the messages queued while it copies",
        Invariant.NOTHING_LOST,
        phases.HandoverSource,
        "_difference",
        _without_queued,
    ),
)
"""Defects of the control while a handover copies queued messages."""

CONTROL: Final = (
    *SESSIONS,
    *COPYING,
    Variant(
        "the core does not know the end of a lease",
        Invariant.ONE_OWNER,
        Jurisdiction,
        "set_grant",
        _without_lease_end_in_core,
    ),
    Variant(
        "a node's clock stands still while its machine is suspended",
        Invariant.ONE_OWNER,
        Host,
        "clock",
        _clock_without_suspension,
    ),
    Variant(
        "a node accepts packets of another node without a proof",
        Invariant.ONE_OWNER,
        Channels,
        "admits",
        _without_proof,
    ),
    Variant(
        "a parent uses the same nonce on every link",
        Invariant.PROVED,
        Channels,
        "_own_nonce",
        _constant_nonce,
    ),
    Variant(
        "a parent reclaims a subtree without allowing for clock drift",
        Invariant.ONE_OWNER,
        delegations.Delegations,
        "_schedule",
        _reclaim_without_drift,
    ),
    Variant(
        "a parent takes LEAVE for DONE",
        Invariant.ONE_OWNER,
        delegations.Delegations,
        "handle_leave",
        _done_by_leave,
        plan=returns.before_disk_is_synced,
    ),
    Variant(
        "a parent forgets its delegations",
        Invariant.ONE_OWNER,
        delegations.Delegations,
        "restore",
        _do_nothing,
    ),
    Variant(
        "a parent delegates a subtree before the delegation is on disk",
        Invariant.ONE_OWNER,
        delegations.Delegations,
        "is_saved",
        _always_noted,
    ),
    Variant(
        "a node sends packets that depend on its files before they are synced",
        Invariant.NOTHING_LOST,
        storage.AfterSync,
        "_queue",
        _act_before_sync,
        plan=torn_writes.with_lost_subscription,
    ),
    Variant(
        "a node takes written records for synced ones",
        Invariant.ONE_OWNER,
        record_file.RecordFile,
        "sync",
        _do_nothing,
    ),
    Variant(
        "a node takes records that a full disk refused for written ones",
        Invariant.ONE_OWNER,
        store.Store,
        "flush",
        _ignore_disk_error,
    ),
    Variant(
        "a node takes a short write for a complete one",
        Invariant.ONE_OWNER,
        record_file,
        "write_all",
        _write_once,
        plan=torn_writes.with_full_disk,
    ),
    Variant(
        "a node takes the first torn record of a file for its end, and leaves it there",
        Invariant.ONE_OWNER,
        record_file,
        "read_records",
        _stop_at_first_torn_record,
        plan=torn_writes.with_late_sync,
    ),
    Variant(
        "a node measures its downtime with the wall clock",
        Invariant.NOTHING_LOST,
        NodeHost,
        "restart",
        _downtime_by_wall_clock,
    ),
    Variant(
        "a child takes epochs from its own wall clock",
        Invariant.EPOCHS_RISE,
        epoch_clock.EpochClock,
        "follow",
        _do_nothing,
    ),
    Variant(
        "a root that restarts takes epochs from its wall clock",
        Invariant.EPOCHS_RISE,
        epoch_clock.EpochClock,
        "begin",
        _wall_clock_after_restart,
    ),
    Variant(
        "a node does not update its checkpoint while its disk fails",
        Invariant.NOTHING_LOST,
        store.Store,
        "save_checkpoint",
        _touch_without_fault,
    ),
    Variant(
        "a handover leaves out the clients that the owner waits for",
        Invariant.NOTHING_LOST,
        recovery.Recovery,
        "install_state",
        _do_nothing,
    ),
    Variant(
        "epochs start at zero in each run of a node",
        Invariant.EPOCHS_RISE,
        epoch_clock.EpochClock,
        "at",
        _epoch_from_zero,
    ),
    Variant(
        "a node forgets a requested subtree before its parent has it back",
        Invariant.CLAIMED,
        subtree_claims.SubtreeClaims,
        "hand_back",
        _forget_before_hand_back,
    ),
    Variant(
        "a parent ignores the epoch of a child that has restarted",
        Invariant.RECOVERS,
        join_responder.JoinResponder,
        "_admit",
        _ignore_epoch,
    ),
    Variant(
        "a new owner inherits no subscriptions",
        Invariant.COMPLETE,
        subscriptions.OwnerSubscriptions,
        "_restore",
        _do_nothing,
    ),
    Variant(
        "a handover leaves out the subscriptions made during it",
        Invariant.COMPLETE,
        phases.HandoverSource,
        "handle_subscription_changed",
        _do_nothing,
    ),
    Variant(
        "a handover leaves out the retained messages",
        Invariant.RETAINED,
        phases,
        "transfer_packets",
        _without_retained,
    ),
    Variant(
        "a subscription is complete when the root has answered",
        Invariant.COMPLETE,
        subscription.ClientSubscription,
        "is_complete",
        _complete_after_root,
    ),
    Variant(
        "an owner keeps subscriptions that have ended",
        Invariant.BOUNDED,
        subscriptions.OwnerSubscriptions,
        "_remove",
        _only_reported,
    ),
    Variant(
        "a client subscribes again at an owner that has its subscription",
        Invariant.QUIET,
        owners.SubscriptionOwners,
        "_activate",
        _subscribe_again,
    ),
    Variant(
        "a node with a store does not restore what waits for a session",
        Invariant.NOTHING_LOST,
        subscriptions.OwnerSubscriptions,
        "restore_saved",
        _without_stored_queues,
    ),
)
"""Defects of the control."""

CORE: Final = (
    Variant(
        "an owner acknowledges before it distributes", Invariant.NOTHING_LOST, defect="AcknowledgesEarly"
    ),
    Variant(
        "duplicates of a message are not recognised",
        Invariant.NOTHING_DOUBLED,
        defect="ForgetsMessageIds",
    ),
    Variant("a delivery does not wait for the one before it", Invariant.ORDER, defect="KeepsNoOrder"),
    Variant("lost packets are not sent again", Invariant.RECOVERS, defect="SendsOnce"),
    Variant("a client learns nothing from a refusal", Invariant.RECOVERS, defect="LearnsNothing"),
    Variant(
        "a link ignores a changed incarnation of its peer",
        Invariant.RECOVERS,
        defect="IgnoresIncarnation",
    ),
    Variant(
        "a message is complete when its last part has been received",
        Invariant.INTACT,
        defect="EndsWithLastPart",
    ),
    Variant(
        "late acknowledgements of a stalled subscriber are not counted",
        Invariant.ADDS_UP,
        defect="ForgetsLateAnswers",
    ),
    Variant("a message that expired in a queue is sent", Invariant.EXPIRES, defect="SendsTheDead"),
    Variant(
        "a full queue drops its oldest message and acknowledges the others",
        Invariant.KEEPS,
        defect="DropsWhatWaits",
    ),
    Variant(
        "an owner waits for a subscriber that sends any acknowledgement",
        Invariant.PACED,
        defect="TakesAnyAnswer",
    ),
    Variant(
        "an owner accepts messages with any publisher id",
        Invariant.GENUINE,
        defect="TakesAnyPublisher",
    ),
    Variant(
        "a client does not answer the link that a node's next run opens",
        Invariant.COMPLETE,
        defect="IgnoresNextRun",
        plan=returns.within_idle_timeout,
    ),
    Variant(
        "an owner acknowledges before its store has the message",
        Invariant.NOTHING_LOST,
        defect="AcknowledgesUnstored",
        plan=power_cuts.while_messages_wait,
    ),
    Variant(
        "a store takes what it has written for stored",
        Invariant.NOTHING_LOST,
        defect="SyncsNothing",
        plan=power_cuts.while_messages_wait,
    ),
    Variant(
        "a store goes on after a sync that failed",
        Invariant.NOTHING_LOST,
        defect="IgnoresSyncErrors",
        plan=power_cuts.after_failed_sync,
    ),
    Variant(
        "a store passes over damaged records, and reports none",
        Invariant.NOTHING_LOST,
        defect="HidesDamage",
        plan=power_cuts.with_flipped_bit,
    ),
)
"""Defects of the core, in a test build."""

VARIANTS: Final = {variant.name: variant for variant in (*CONTROL, *CORE)}
