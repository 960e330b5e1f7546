"""A subtree's state on its way from its old owner to its new one (§5.4), both ends.

        old owner (Giving)                     new owner (Taking)
            RECORDS ... RECORDS last  ------>
                                      <------  READY
        stops serving
            RECORDS (the changes), COMMIT ---->
                                               serves
                                      <------  DONE

Between COMMIT's two ends nobody serves the subtree, so no message is ever accepted by two owners, and none
by an owner that lacks a subscription made before. The order rests on the link: in a session packets arrive
once and in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Final

from google.protobuf.message import DecodeError

from hbroker._native import filter_is_valid, filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import NodeCore
from hbroker.protocol.machine import Machine
from hbroker.protocol.packets import pack
from hbroker.protocol.subscribers import Subscription, ended_of, record_of, subscription_from

__all__ = [
    "GIVING",
    "TAKING",
    "Giving",
    "GivingEvent",
    "GivingState",
    "Taking",
    "TakingEvent",
    "TakingState",
    "send_records",
]

CHUNK: Final = 900
"""Bytes of records in one packet, so that it fits a datagram of 1,200.

A single larger record travels alone.
"""
MOST_RECORDS: Final = 10_000_000


class GivingState(Enum):
    AWAIT_READY = auto()
    AWAIT_DONE = auto()
    COMPLETE = auto()


class GivingEvent(Enum):
    READY = auto()
    DONE = auto()


GIVING: Final = {
    (GivingState.AWAIT_READY, GivingEvent.READY): GivingState.AWAIT_DONE,
    (GivingState.AWAIT_DONE, GivingEvent.DONE): GivingState.COMPLETE,
}

_GIVING_EVENTS: Final = {
    pb.TRANSFER_PHASE_READY: GivingEvent.READY,
    pb.TRANSFER_PHASE_DONE: GivingEvent.DONE,
}


class TakingState(Enum):
    AWAIT_RECORDS = auto()
    AWAIT_COMMIT = auto()
    COMPLETE = auto()


class TakingEvent(Enum):
    RECORDS = auto()
    LAST_RECORDS = auto()
    COMMIT = auto()


TAKING: Final = {
    (TakingState.AWAIT_RECORDS, TakingEvent.RECORDS): TakingState.AWAIT_RECORDS,
    (TakingState.AWAIT_RECORDS, TakingEvent.LAST_RECORDS): TakingState.AWAIT_COMMIT,
    (TakingState.AWAIT_COMMIT, TakingEvent.RECORDS): TakingState.AWAIT_COMMIT,
    (TakingState.AWAIT_COMMIT, TakingEvent.COMMIT): TakingState.COMPLETE,
}


class Giving:
    """The old owner's end."""

    def __init__(self, core: NodeCore, subtree: str, epoch: int, link: int) -> None:
        self._core = core
        self._subtree = subtree
        self._epoch = epoch
        self._link = link
        self._machine = Machine(GIVING, GivingState.AWAIT_READY)
        self._sent: dict[bytes, None] = {}

    def begin(self, subscriptions: Iterable[Subscription]) -> None:
        """Sends what there is now."""
        retained = self._core.retained(self._subtree)
        self._sent = dict.fromkeys(retained)
        records = [record_of(s) for s in subscriptions]
        send_records(self._core, self._link, self._subtree, self._epoch, records, retained)
        self._send(pb.Transfer(phase=pb.TRANSFER_PHASE_RECORDS, last=True))

    def follow(self, subscription: Subscription, ended: bool) -> None:
        """A subscription was made or ended meanwhile.

        After COMMIT the client and the new owner settle it alone.
        """
        waiting = self._machine.state is GivingState.AWAIT_READY
        if waiting and filter_touches(subscription.filter, self._subtree):
            record = ended_of(subscription) if ended else record_of(subscription)
            self._send(pb.Transfer(phase=pb.TRANSFER_PHASE_RECORDS, subscriptions=[record]))

    def handle(self, transfer: pb.Transfer) -> GivingState | None:
        """The new owner's answer; None where it is not due.

        AWAIT_DONE asks the caller to stop serving, then `commit`.
        """
        event = _GIVING_EVENTS.get(transfer.phase)
        if event is None or transfer.epoch != self._epoch or not self._machine.accepts(event):
            return None
        return self._machine.handle(event)

    def commit(self) -> None:
        """Sends the changes since, and the right to serve. The caller serves the subtree no more."""
        retained = dict.fromkeys(self._core.retained(self._subtree))
        changed = [message for message in retained if message not in self._sent]
        cleared = _topics(self._sent) - _topics(retained)
        changed += [pb.Publish(topic=t, retain=True).SerializeToString() for t in sorted(cleared)]
        send_records(self._core, self._link, self._subtree, self._epoch, [], changed)
        self._sent = {}
        self._send(pb.Transfer(phase=pb.TRANSFER_PHASE_COMMIT))
        self._core.drop_retained(self._subtree)

    def _send(self, transfer: pb.Transfer) -> None:
        transfer.subtree, transfer.epoch = self._subtree, self._epoch
        self._core.send(self._link, pack(transfer))


class Taking:
    """The new owner's end. The subscriptions wait here, the retained messages in the core, until COMMIT."""

    def __init__(self, core: NodeCore, subtree: str, epoch: int, link: int) -> None:
        self._core = core
        self._subtree = subtree
        self._epoch = epoch
        self._link = link
        self._machine = Machine(TAKING, TakingState.AWAIT_RECORDS)
        self._subscriptions: dict[tuple[int, str], Subscription] = {}

    def handle(self, transfer: pb.Transfer) -> TakingState | None:
        """The old owner's packet; None where it is not due. COMPLETE: serve `subscriptions`, then `done`."""
        event = _taking_event(transfer)
        if event is None or transfer.epoch != self._epoch or not self._machine.accepts(event):
            return None
        if event is not TakingEvent.COMMIT:
            self._take(transfer)
        if event is TakingEvent.LAST_RECORDS:
            self._answer(pb.TRANSFER_PHASE_READY)
        return self._machine.handle(event)

    @property
    def subscriptions(self) -> list[Subscription]:
        """What was handed over so far."""
        return list(self._subscriptions.values())

    def done(self) -> None:
        """Tells the old owner that the subtree is served again."""
        self._answer(pb.TRANSFER_PHASE_DONE)

    def abandon(self) -> None:
        """Forgets what came: the handover failed before COMMIT, and the old owner serves on."""
        self._subscriptions.clear()
        self._core.drop_retained(self._subtree)

    def _take(self, transfer: pb.Transfer) -> None:
        for record in transfer.subscriptions:
            subscription = subscription_from(record)
            if subscription is None:
                self._subscriptions.pop((record.session, record.filter), None)
            elif filter_is_valid(record.filter) and len(self._subscriptions) < MOST_RECORDS:
                self._subscriptions[record.session, record.filter] = subscription
        if transfer.retained:
            self._core.take_retained(list(transfer.retained))

    def _answer(self, phase: pb.TransferPhase) -> None:
        answer = pb.Transfer(subtree=self._subtree, epoch=self._epoch, phase=phase)
        self._core.send(self._link, pack(answer))


def send_records(
    core: NodeCore,
    link: int,
    subtree: str,
    epoch: int,
    subscriptions: Iterable[pb.SubscriptionRecord],
    retained: Iterable[bytes],
) -> None:
    """Sends records in packets that each fit a datagram."""
    for chunk in _chunks(subscriptions, retained):
        chunk.subtree, chunk.epoch, chunk.phase = subtree, epoch, pb.TRANSFER_PHASE_RECORDS
        core.send(link, pack(chunk))


def _chunks(
    subscriptions: Iterable[pb.SubscriptionRecord], retained: Iterable[bytes]
) -> Iterator[pb.Transfer]:
    chunk, size = pb.Transfer(), 0
    records: Iterator[pb.SubscriptionRecord | bytes] = iter([*subscriptions, *retained])
    for record in records:
        length = len(record) if isinstance(record, bytes) else record.ByteSize()
        if size and size + length > CHUNK:
            yield chunk
            chunk, size = pb.Transfer(), 0
        if isinstance(record, bytes):
            chunk.retained.append(record)
        else:
            chunk.subscriptions.append(record)
        size += length
    if size:
        yield chunk


def _taking_event(transfer: pb.Transfer) -> TakingEvent | None:
    if transfer.phase == pb.TRANSFER_PHASE_COMMIT:
        return TakingEvent.COMMIT
    if transfer.phase == pb.TRANSFER_PHASE_RECORDS:
        return TakingEvent.LAST_RECORDS if transfer.last else TakingEvent.RECORDS
    return None


def _topics(messages: Iterable[bytes]) -> set[str]:
    topics = set()
    for message in messages:
        try:
            topics.add(pb.Publish.FromString(message).topic)
        except DecodeError:
            continue
    return topics
