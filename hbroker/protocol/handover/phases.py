"""The handover of a subtree with all its state (§5.4), at the source and at the target.

        source (HandoverSource)                target (HandoverTarget)
            RECORDS ... RECORDS last  ------>
        (it serves meanwhile; what waits for
        sessions is copied, until little is
        left)
                                      <------  READY
        stops serving, and waits until the
        messages that it accepted are
        distributed
            RECORDS (the difference), COMMIT ->
                                               serves
                                      <------  DONE

From the stop until COMMIT arrives nobody serves the subtree. So no message is accepted by two owners, or by
an owner that lacks an earlier subscription. The order rests on the link: in a session, packets arrive once
and in order.

A subtree may have much state. It is sent in rounds: a few packets, then a pause, or a longer pause if the
link has no room. Nothing is discarded on the way, and the rest of the control goes on in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import chain
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from hbroker._native import filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.core import NodeCore
from hbroker.protocol.handover.subtree_state import (
    Record,
    SubtreeState,
    ended,
    transfer_packets,
)
from hbroker.protocol.packets import pack
from hbroker.protocol.sessions.subscription_store import Subscription, ended_of, record_of
from hbroker.protocol.state_machine import StateMachine
from hbroker.protocol.timers import earliest

__all__ = [
    "SOURCE_TRANSITIONS",
    "TARGET_TRANSITIONS",
    "HandoverSource",
    "HandoverTarget",
    "MovingChildren",
    "SourceEvent",
    "SourceState",
    "TargetEvent",
    "TargetState",
    "TransferSender",
]

PACKETS_PER_ITERATION: Final = 64
PAUSE: Final = 2_000
"""Microseconds between two rounds of a handover."""
NO_ROOM_PAUSE: Final = 10_000
"""Microseconds until the next try, if the link has no room."""
DRAIN_WAIT: Final = timers.SECOND // 10
"""Microseconds that accepted messages may take to be distributed, once the source has stopped serving."""
MOVING_WAIT: Final = timers.SECOND
"""Microseconds that a child below, whose handover is about to end, may delay COMMIT."""
DISK_WAIT: Final = timers.SECOND
"""Microseconds for which nobody serves the subtree because the source cannot write that it is delegated."""


class SourceState(Enum):
    """What the source waits for."""

    AWAIT_READY = auto()
    DRAINING = auto()
    """The source has stopped serving, and waits until the messages that it accepted are distributed."""
    AWAIT_DONE = auto()
    COMPLETE = auto()


class SourceEvent(Enum):
    """What happens to a handover at the source."""

    READY = auto()
    DRAINED = auto()
    """All messages are distributed, or their time is over."""
    DONE = auto()


SOURCE_TRANSITIONS: Final = {
    (SourceState.AWAIT_READY, SourceEvent.READY): SourceState.DRAINING,
    (SourceState.DRAINING, SourceEvent.DRAINED): SourceState.AWAIT_DONE,
    (SourceState.AWAIT_DONE, SourceEvent.DONE): SourceState.COMPLETE,
}

_SOURCE_EVENTS: Final = {
    pb.TRANSFER_PHASE_READY: SourceEvent.READY,
    pb.TRANSFER_PHASE_DONE: SourceEvent.DONE,
}


class TargetState(Enum):
    """What the target waits for."""

    AWAIT_RECORDS = auto()
    AWAIT_COMMIT = auto()
    COMPLETE = auto()


class TargetEvent(Enum):
    """A packet of the source."""

    RECORDS = auto()
    LAST_RECORDS = auto()
    COMMIT = auto()


TARGET_TRANSITIONS: Final = {
    (TargetState.AWAIT_RECORDS, TargetEvent.RECORDS): TargetState.AWAIT_RECORDS,
    (TargetState.AWAIT_RECORDS, TargetEvent.LAST_RECORDS): TargetState.AWAIT_COMMIT,
    (TargetState.AWAIT_COMMIT, TargetEvent.RECORDS): TargetState.AWAIT_COMMIT,
    (TargetState.AWAIT_COMMIT, TargetEvent.COMMIT): TargetState.COMPLETE,
}


_NOT_READY: Final = b""
"""Stands for a packet that is not ready yet."""


class TransferSender:
    """Sends records over a link, in rounds. None among the packets: the next ones are not ready yet."""

    def __init__(self, core: NodeCore, subtree: str, epoch: int, link: int) -> None:
        self._core = core
        self._subtree = subtree
        self._epoch = epoch
        self._link = link
        self._batches: deque[Iterator[pb.Transfer | None]] = deque()
        self._unsent: bytes | None = None
        self._due: int | None = None
        self.progress_at = 0
        """When a packet was last sent, or was not ready yet, in microseconds."""

    def add(self, transfer_packets: Iterable[pb.Transfer | None]) -> None:
        """Adds packets behind all earlier ones, to be sent from the next round on."""
        self._batches.append(iter(transfer_packets))
        self._due = 0 if self._due is None else self._due

    def handle_timeout(self, now: int) -> None:
        """Sends the packets of one round."""
        if self._due is None or now < self._due:
            return
        self._due = now + PAUSE
        for _ in range(PACKETS_PER_ITERATION):
            packet = self._unsent or self._next()
            if packet is None:
                self._due = None
                return
            if packet is _NOT_READY:
                self.progress_at = now
                return
            if not self._core.send(self._link, packet):
                self._unsent, self._due = packet, now + NO_ROOM_PAUSE
                return
            self._unsent, self.progress_at = None, now

    def poll_timeout(self) -> int | None:
        """When the next round is due, in microseconds; None: everything is sent."""
        return self._due

    def _next(self) -> bytes | None:
        while self._batches:
            for transfer in self._batches[0]:
                if transfer is None:
                    return _NOT_READY
                transfer.subtree, transfer.epoch = self._subtree, self._epoch
                return pack(transfer)
            self._batches.popleft()
        return None


class MovingChildren(Protocol):
    """The children whose handovers are about to end (`Delegations`)."""

    def moving_below(self, subtree: str) -> Sequence[object]:
        """Those below a subtree."""

    def overtake_below(self, subtree: str) -> None:
        """The handovers back to this node were too slow: ends them. Their subtrees go along as cuts."""


class HandoverSource:
    """The source's end.

    - `is_former_owner`: the target gets its own subtree back, and nobody has served it in between.
    - `exported`: where the core holds what waited in the subtree when an earlier handover of it failed after
      COMMIT (0: nothing). It belongs to this handover from now on.
    - `is_saved()`: whether the next run of this node will know that the subtree is delegated.
    """

    def __init__(
        self,
        core: NodeCore,
        subtree_state: SubtreeState,
        subtree: str,
        epoch: int,
        link: int,
        moving_children: MovingChildren,
        exported: int = 0,
        *,
        is_former_owner: bool = False,
        is_saved: Callable[[], bool] = lambda: True,
    ) -> None:
        self._core = core
        self._subtree_state = subtree_state
        self._subtree = subtree
        self._epoch = epoch
        self._is_former_owner = is_former_owner
        self._is_saved = is_saved
        self._moving_children = moving_children
        self._state_machine = StateMachine(SOURCE_TRANSITIONS, SourceState.AWAIT_READY)
        self._sender = TransferSender(core, subtree, epoch, link)
        self._export = core.begin_export(subtree, self._excluded, exported)
        self._sent_records: dict[tuple[str, str | int], bytes] = {}
        self._sent_retained: dict[bytes, None] = {}
        self._stopped_at = 0
        self._drain_at: int | None = None
        """When to check again whether all messages are distributed."""
        self._barrier: int | None = None
        """Was raised when the subtree was no longer served."""

    def begin(self, now: int) -> None:
        """Sends the snapshot and the copies (step 1)."""
        other_records = self._subtree_state.other_records(
            self._subtree, is_former_owner=self._is_former_owner
        )
        retained = self._core.retained(self._subtree, self._excluded)
        self._sent_records = {key: _bytes_of(record) for key, record in other_records.items()}
        self._sent_retained = dict.fromkeys(retained)
        records = chain(
            other_records.values(), self._subtree_state.subscription_records(self._subtree), retained
        )
        self._sender.add(transfer_packets(records))
        self._sender.add(self._copied_messages())
        self._sender.add([pb.Transfer(last=True)])
        self._sender.progress_at = now
        self._sender.handle_timeout(now)

    def handle_subscription_changed(self, subscription: Subscription, ended: bool) -> None:
        """A subscription was made or ended meanwhile.

        After COMMIT this is between its client and the target.
        """
        if not self.has_committed and filter_touches(subscription.filter, self._subtree):
            record = ended_of(subscription) if ended else record_of(subscription)
            self._sender.add([pb.Transfer(subscriptions=[record])])

    def handle(self, now: int, transfer: pb.Transfer) -> SourceState | None:
        """Handles READY or DONE of the target. Returns the new state; None: the packet was not expected.

        If the state is DRAINING, the caller must stop serving the subtree before it calls anything else here.
        """
        event = _SOURCE_EVENTS.get(transfer.phase)
        if event is None or transfer.epoch != self._epoch or not self._state_machine.accepts(event):
            return None
        self._sender.progress_at = now
        if event is SourceEvent.READY:
            self._stopped_at = self._drain_at = now
        return self._state_machine.handle(event)

    def handle_timeout(self, now: int) -> None:
        """Sends the packets of a round, and commits once all messages are distributed."""
        self._sender.handle_timeout(now)
        if self._drain_at is None or now < self._drain_at:
            return
        if self._sender.poll_timeout() is None and self._is_drained(now):
            self._drain_at = None
            self._state_machine.handle(SourceEvent.DRAINED)
            self._commit(now)
        else:
            self._drain_at = now + PAUSE

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return earliest(self._sender.poll_timeout(), self._drain_at)

    def abandon(self) -> int:
        """Ends the handover. Returns where the core holds what waited for subscribers, if nobody else has it;
        0: it is in its sessions.

        After COMMIT the core holds it until the target answers DONE.
        """
        return self._export if self.has_committed else self._core.stop_export(self._export)

    @property
    def has_stopped(self) -> bool:
        """Whether this node must not serve the subtree any more."""
        return self._state_machine.state is not SourceState.AWAIT_READY

    @property
    def has_committed(self) -> bool:
        """Whether COMMIT was sent. Only an answer of the target, or the end of its lease, brings the subtree
        back."""
        return self._state_machine.state in (SourceState.AWAIT_DONE, SourceState.COMPLETE)

    def is_held_up(self, now: int) -> bool:
        """Whether nobody serves the subtree only because this node's disk fails."""
        is_waiting = self._drain_at is not None and now >= self._stopped_at + DISK_WAIT
        return is_waiting and not self._is_saved()

    @property
    def progress_at(self) -> int:
        """When the handover last made progress: sent a packet, or got an answer. In microseconds."""
        return self._sender.progress_at

    @property
    def _excluded(self) -> list[str]:
        return self._subtree_state.subtrees_granted_below(self._subtree)

    def _copied_messages(self) -> Iterator[pb.Transfer | None]:
        """The messages that wait for sessions, until few are left; the rest goes with COMMIT. None: the core
        is reading the next ones from its store."""
        is_near = False
        while not is_near:
            transfers, is_near = self._core.copy_export(self._export, self._excluded)
            yield from map(pb.Transfer.FromString, transfers)
            if not transfers and not is_near:
                yield None

    def _difference(self) -> Iterator[pb.Transfer]:
        """The changes of these messages since they were copied. From now on the core holds all of them."""
        return map(pb.Transfer.FromString, self._core.finish_export(self._export, self._excluded))

    def _is_drained(self, now: int) -> bool:
        if self._barrier is None:
            self._barrier = self._core.raise_barrier(self._subtree)
        if not self._core.has_passed(self._barrier):
            return False  # §5.4: messages on their way between workers may be acknowledged already.
        waited = now - self._stopped_at
        if not self._is_saved():
            return False
        if waited < MOVING_WAIT and self._moving_children.moving_below(self._subtree):
            return False
        if self._core.has_uncopied(self._export, self._excluded):
            transfers, _ = self._core.copy_export(self._export, self._excluded)
            self._sender.add(map(pb.Transfer.FromString, transfers))
            return False
        return waited >= DRAIN_WAIT or not self._core.drain_subtree(self._subtree, self._excluded)

    def _commit(self, now: int) -> None:
        """Sends the difference to the snapshot and the copies, and COMMIT (step 3)."""
        self._moving_children.overtake_below(self._subtree)
        other_records = self._subtree_state.other_records(
            self._subtree, is_former_owner=self._is_former_owner
        )
        changed: list[Record] = [
            r for key, r in other_records.items() if self._sent_records.get(key) != _bytes_of(r)
        ]
        gone = (ended(key) for key in self._sent_records.keys() - other_records.keys())
        changed += [record for record in gone if record is not None]
        retained = dict.fromkeys(self._core.retained(self._subtree, self._excluded))
        changed += [message for message in retained if message not in self._sent_retained]
        changed += _cleared(self._sent_retained, retained)
        changed += self._subtree_state.replays(self._subtree)
        self._sender.add(transfer_packets(changed))
        self._sender.add(self._difference())
        self._sender.add([pb.Transfer(phase=pb.TRANSFER_PHASE_COMMIT)])
        self._sent_records, self._sent_retained = {}, {}
        self._sender.handle_timeout(now)


class HandoverTarget:
    """The target's end. Records wait here until COMMIT, except subscriptions, which have no effect before
    that. The core holds the copied messages outside of any session."""

    def __init__(
        self, core: NodeCore, subtree_state: SubtreeState, subtree: str, epoch: int, link: int
    ) -> None:
        self._core = core
        self._subtree_state = subtree_state
        self._subtree = subtree
        self._epoch = epoch
        self._link = link
        self._state_machine = StateMachine(TARGET_TRANSITIONS, TargetState.AWAIT_RECORDS)
        self.received = subtree_state.begin_receiving(subtree)

    def handle(self, transfer: pb.Transfer) -> TargetState | None:
        """Handles a packet of the source. Returns the new state; None: the packet was not expected. If the
        state is COMPLETE, the caller takes the received state over, and then calls `send_done`."""
        event = _target_event(transfer)
        if event is None or transfer.epoch != self._epoch or not self._state_machine.accepts(event):
            return None
        if event is not TargetEvent.COMMIT:
            self.received.add(transfer)
            self._subtree_state.prepare(transfer, self.received)
            if transfer.queued or transfer.gone or transfer.seen or transfer.choices:
                self._import_records(transfer)
        if event is TargetEvent.LAST_RECORDS:
            self._send_phase(pb.TRANSFER_PHASE_READY)
        return self._state_machine.handle(event)

    def send_done(self) -> None:
        """Answers DONE: the subtree is served again."""
        self._send_phase(pb.TRANSFER_PHASE_DONE)

    def abandon(self) -> None:
        """Discards the received state: the handover failed before COMMIT, and the source serves on."""
        self._subtree_state.discard(self.received)
        for held in self.received.held:
            self._core.drop_held(held)

    def _import_records(self, transfer: pb.Transfer) -> None:
        if not self.received.held:
            self.received.held.append(self._core.begin_import())
        (held,) = self.received.held
        self.received.refused += self._core.take_records(held, transfer.SerializeToString())

    def _send_phase(self, phase: pb.TransferPhase) -> None:
        answer = pb.Transfer(subtree=self._subtree, epoch=self._epoch, phase=phase)
        self._core.send(self._link, pack(answer))


def _target_event(transfer: pb.Transfer) -> TargetEvent | None:
    if transfer.phase == pb.TRANSFER_PHASE_COMMIT:
        return TargetEvent.COMMIT
    if transfer.phase == pb.TRANSFER_PHASE_RECORDS:
        return TargetEvent.LAST_RECORDS if transfer.last else TargetEvent.RECORDS
    return None


def _bytes_of(record: Record) -> bytes:
    """What shows whether a record has changed. That a session began anew longer ago is no change."""
    if isinstance(record, bytes):
        return record
    if isinstance(record, pb.SessionRecord) and record.HasField("begun_us"):
        ageless = pb.SessionRecord()
        ageless.CopyFrom(record)
        ageless.ClearField("begun_us")
        record = ageless
    return record.SerializeToString(deterministic=True)


def _cleared(before: Iterable[bytes], now: Iterable[bytes]) -> list[bytes]:
    """The records that clear the retained messages of topics that have none any more."""
    still, earlier = set(now), set(before)
    topics = _topics(earlier - still) - _topics(still - earlier)
    return [pb.Publish(topic=topic, retain=True).SerializeToString() for topic in sorted(topics)]


def _topics(messages: Iterable[bytes]) -> set[str]:
    topics = set()
    for message in messages:
        try:
            topics.add(pb.Publish.FromString(message).topic)
        except DecodeError:
            continue
    return topics
