"""What the gateway itself publishes: claims, records, wills, answers, through the shared member.

A letter is repeated until it is distributed, or refused for good. Of letters that replace each other
(records, under one topic) only the newest is repeated: an older one that came after it would undo it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from hbroker._native import NativeError
from hbroker.gateway.native_api import Member, WillMessage
from hbroker.properties import mqtt_properties_of
from hbroker.protocol.packets import Reason
from hbroker.protocol.timer_queue import TimerQueue, earliest
from hbroker.protocol.timers import retry_after

__all__ = ["Done", "Outbox", "OutboxMessage"]

Done: TypeAlias = Callable[[int, bool], None]
"""Told the time, and whether the letter was distributed."""

_ROOM_PAUSE: Final = 10_000
_DISTRIBUTED: Final = frozenset({Reason.REASON_SUCCESS, Reason.REASON_NO_MATCHING_SUBSCRIBERS})

# §8: nothing that comes later would change these.
_FINAL: Final = frozenset(
    {
        Reason.REASON_MESSAGE_EXPIRED,
        Reason.REASON_NOT_AUTHORIZED,
        Reason.REASON_TOPIC_NAME_INVALID,
        Reason.REASON_PROTOCOL_ERROR,
    }
)


@dataclass(slots=True, eq=False)
class OutboxMessage:
    """One message. `replaces`: it takes the place of the ones before under its topic. `until`: when it is not
    repeated any more, in microseconds; None: never."""

    message: WillMessage
    done: Done | None = None
    replaces: bool = False
    until: int | None = None
    attempts: int = 0
    also_done: list[Done] = field(default_factory=list)
    """Told too: they waited for letters that this one took the place of before they were sent."""

    @property
    def topic(self) -> str:
        """Where it goes."""
        return self.message.topic


class Outbox:
    """Letters that are on their way. `unix_offset_us`: what the wall clock has more than `now`."""

    def __init__(self, member: Member, random: Random, unix_offset_us: int) -> None:
        self._member = member
        self._random = random
        self._unix_offset_us = unix_offset_us
        self._waiting: OrderedDict[OutboxMessage, None] = OrderedDict()
        self._sent: dict[int, OutboxMessage] = {}
        self._newest: dict[str, OutboxMessage] = {}
        self._pauses: TimerQueue[OutboxMessage] = TimerQueue()
        self._room_at: int | None = None

    def enqueue(self, now: int, entry: OutboxMessage) -> None:
        """Publishes a letter, behind those that wait for room. One that it replaces does not wait any more;
        who waited for that waits for this."""
        if entry.replaces:
            former = self._newest.get(entry.topic)
            if former is not None and former in self._waiting:
                del self._waiting[former]
                entry.also_done = former.also_done
                if former.done is not None:
                    entry.also_done.append(former.done)
            self._newest[entry.topic] = entry
        self._waiting[entry] = None
        self._send(now)

    def handle_published(self, now: int, sequence: int, reason: int) -> None:
        """What became of a message."""
        entry = self._sent.pop(sequence, None)
        if entry is None:
            return
        is_late = entry.until is not None and entry.until <= now
        if reason in _DISTRIBUTED:
            self._end(now, entry, is_distributed=True)
        elif reason in _FINAL or is_late or self._is_replaced(entry):
            self._end(now, entry, is_distributed=False)
        else:
            self._pauses.set(entry, now + retry_after(entry.attempts, self._random))
            entry.attempts += 1

    def handle_timeout(self, now: int) -> None:
        """Sends what had no room, and what failed."""
        for entry in self._pauses.due(now):
            if self._is_replaced(entry):
                self._end(now, entry, is_distributed=False)
            else:
                self._waiting[entry] = None
        if self._room_at is not None and self._room_at <= now:
            self._room_at = None
        self._send(now)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        return earliest(self._room_at, self._pauses.next())

    def __len__(self) -> int:
        """How many are not distributed yet."""
        return len(self._waiting) + len(self._sent) + len(self._pauses)

    def _send(self, now: int) -> None:
        while self._waiting and self._room_at is None:
            entry, _ = self._waiting.popitem(last=False)
            if self._is_replaced(entry):
                self._end(now, entry, is_distributed=False)
                continue
            try:
                sequence = self._publish(now, entry.message)
            except NativeError:  # its topic or its size: no later attempt would go better
                self._end(now, entry, is_distributed=False)
                continue
            if sequence is None:
                self._waiting[entry] = None
                self._waiting.move_to_end(entry, last=False)
                self._room_at = now + _ROOM_PAUSE
            elif entry.message.qos:
                self._sent[sequence] = entry
            else:
                self._end(now, entry, is_distributed=True)

    def _publish(self, now: int, message: WillMessage) -> int | None:
        return self._member.publish(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            published_at_us=now + self._unix_offset_us,
            **mqtt_properties_of(message),
        )

    def _is_replaced(self, entry: OutboxMessage) -> bool:
        return entry.replaces and self._newest.get(entry.topic) is not entry

    def _end(self, now: int, entry: OutboxMessage, *, is_distributed: bool) -> None:
        if self._newest.get(entry.topic) is entry:
            del self._newest[entry.topic]
        for done in entry.also_done if entry.done is None else [*entry.also_done, entry.done]:
            done(now, is_distributed)
