"""The messages that the gateway itself publishes, through the shared pool client: claims, records, wills,
answers.

The outbox publishes a message again until it is distributed, or refused for good. Of records under one topic
only the newest is published again: an older one that arrived after it would undo it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

from hbroker._native import NativeError
from hbroker.gateway.native_api import Member, WillMessage
from hbroker.properties import mqtt_properties_of
from hbroker.protocol.packets import Reason
from hbroker.protocol.timers import TimerQueue, earliest, retry_after

__all__ = ["Done", "Outbox", "OutboxMessage", "WaitGroup"]

Done: TypeAlias = Callable[[int, bool], None]
"""Called with the time, and with whether the message was distributed."""

_ROOM_PAUSE: Final = 10_000
_DISTRIBUTED: Final = frozenset({Reason.REASON_SUCCESS, Reason.REASON_NO_MATCHING_SUBSCRIBERS})

# docs/protocol.md §8: no later attempt would have another result.
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
    """One message to publish. `replaces`: it replaces the earlier messages under its topic. `until`: the time
    in microseconds after which it is not published again; None: there is no such time."""

    message: WillMessage
    done: Done | None = None
    replaces: bool = False
    until: int | None = None
    attempts: int = 0
    also_done: list[Done] = field(default_factory=list)
    """Also called: they were to be called for messages that this one replaced before they were sent."""

    @property
    def topic(self) -> str:
        """The topic of the message."""
        return self.message.topic


class Outbox:
    """The messages that are not distributed yet. `unix_offset_us`: the wall clock less the clock of `now`."""

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
        """Publishes a message, after those that wait for room in the core.

        A message that it replaces and that still waits is removed. This message's end completes that one,
        too.
        """
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
        """Handles the result of a message of QoS 1."""
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
        """Sends the messages that had no room or failed."""
        for entry in self._pauses.due(now):
            if self._is_replaced(entry):
                self._end(now, entry, is_distributed=False)
            else:
                self._waiting[entry] = None
        if self._room_at is not None and self._room_at <= now:
            self._room_at = None
        self._send(now)

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return earliest(self._room_at, self._pauses.next())

    def __len__(self) -> int:
        """The number of messages that are not distributed yet."""
        return len(self._waiting) + len(self._sent) + len(self._pauses)

    def _send(self, now: int) -> None:
        while self._waiting and self._room_at is None:
            entry, _ = self._waiting.popitem(last=False)
            if self._is_replaced(entry):
                self._end(now, entry, is_distributed=False)
                continue
            try:
                sequence = self._publish(now, entry.message)
            except NativeError:  # its topic or its size is wrong: a later attempt would fail, too
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


class WaitGroup:
    """Calls all waiting callbacks when every operation has ended, with whether all of them succeeded.

    Callbacks may be added to `waiting` until then.
    """

    def __init__(self, waiting: Iterable[Done]) -> None:
        self._waiting = waiting
        self._open = 1
        self._is_good = True

    def one_more(self) -> Done:
        """Begins an operation. Call the returned function when it has ended."""
        self._open += 1
        return self._one_less

    def close(self, now: int) -> None:
        """No more operations are begun."""
        self._one_less(now, True)

    def _one_less(self, now: int, is_good: bool) -> None:
        self._open -= 1
        self._is_good &= is_good
        if not self._open:
            for done in self._waiting:
                done(now, self._is_good)
