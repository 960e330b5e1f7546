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
from hbroker.gateway.native_api import PoolClientCore, WillMessage
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
    in microseconds after which it is not published again; None: there is no such time. `ack_queued`: it
    counts as distributed once it is queued for all subscribers."""

    message: WillMessage
    done: Done | None = None
    replaces: bool = False
    ack_queued: bool = False
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

    def __init__(self, shared_client: PoolClientCore, random: Random, unix_offset_us: int) -> None:
        self._shared_client = shared_client
        self._random = random
        self._unix_offset_us = unix_offset_us
        self._unsent: OrderedDict[OutboxMessage, None] = OrderedDict()
        self._sent: dict[int, OutboxMessage] = {}
        self._newest: dict[str, OutboxMessage] = {}
        self._pauses: TimerQueue[OutboxMessage] = TimerQueue()
        self._room_at: int | None = None

    def enqueue(self, now: int, outbox_message: OutboxMessage) -> None:
        """Publishes a message, after those that wait for room in the core.

        A message that it replaces and that still waits is removed. This message's end completes that one,
        too.
        """
        if outbox_message.replaces:
            former = self._newest.get(outbox_message.topic)
            if former is not None and former in self._unsent:
                del self._unsent[former]
                outbox_message.also_done = former.also_done
                if former.done is not None:
                    outbox_message.also_done.append(former.done)
            self._newest[outbox_message.topic] = outbox_message
        self._unsent[outbox_message] = None
        self._send(now)

    def handle_published(self, now: int, sequence: int, reason: int) -> None:
        """Handles the result of a message of QoS 1."""
        outbox_message = self._sent.pop(sequence, None)
        if outbox_message is None:
            return
        is_late = outbox_message.until is not None and outbox_message.until <= now
        if reason in _DISTRIBUTED:
            self._end(now, outbox_message, is_distributed=True)
        elif reason in _FINAL or is_late or self._is_replaced(outbox_message):
            self._end(now, outbox_message, is_distributed=False)
        else:
            self._pauses.set(outbox_message, now + retry_after(outbox_message.attempts, self._random))
            outbox_message.attempts += 1

    def handle_timeout(self, now: int) -> None:
        """Sends the messages that had no room or failed."""
        for outbox_message in self._pauses.due(now):
            if self._is_replaced(outbox_message):
                self._end(now, outbox_message, is_distributed=False)
            else:
                self._unsent[outbox_message] = None
        if self._room_at is not None and self._room_at <= now:
            self._room_at = None
        self._send(now)

    def poll_timeout(self) -> int | None:
        """The time at which `handle_timeout` is due; None: never."""
        return earliest(self._room_at, self._pauses.next())

    def __len__(self) -> int:
        """The number of messages that are not distributed yet."""
        return len(self._unsent) + len(self._sent) + len(self._pauses)

    def _send(self, now: int) -> None:
        while self._unsent and self._room_at is None:
            outbox_message, _ = self._unsent.popitem(last=False)
            if self._is_replaced(outbox_message):
                self._end(now, outbox_message, is_distributed=False)
                continue
            try:
                sequence = self._publish(now, outbox_message)
            except NativeError:  # its topic or its size is wrong: a later attempt would fail, too
                self._end(now, outbox_message, is_distributed=False)
                continue
            if sequence is None:
                self._unsent[outbox_message] = None
                self._unsent.move_to_end(outbox_message, last=False)
                self._room_at = now + _ROOM_PAUSE
            elif outbox_message.message.qos:
                self._sent[sequence] = outbox_message
            else:
                self._end(now, outbox_message, is_distributed=True)

    def _publish(self, now: int, outbox_message: OutboxMessage) -> int | None:
        message = outbox_message.message
        return self._shared_client.publish(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            published_at_us=now + self._unix_offset_us,
            ack_queued=outbox_message.ack_queued,
            **mqtt_properties_of(message),
        )

    def _is_replaced(self, outbox_message: OutboxMessage) -> bool:
        return outbox_message.replaces and self._newest.get(outbox_message.topic) is not outbox_message

    def _end(self, now: int, outbox_message: OutboxMessage, *, is_distributed: bool) -> None:
        if self._newest.get(outbox_message.topic) is outbox_message:
            del self._newest[outbox_message.topic]
        for done in (*outbox_message.also_done, outbox_message.done):
            if done is not None:
                done(now, is_distributed)


class WaitGroup:
    """Calls all callbacks when every operation has ended, with whether all of them succeeded.

    Callbacks may be added to `callbacks` until then.
    """

    def __init__(self, callbacks: Iterable[Done]) -> None:
        self._callbacks = callbacks
        self._open = 1
        self._succeeded = True

    def add(self) -> Done:
        """Begins an operation. Call the returned function when it has ended."""
        self._open += 1
        return self._done

    def close(self, now: int) -> None:
        """No more operations are begun."""
        self._done(now, True)

    def _done(self, now: int, succeeded: bool) -> None:
        self._open -= 1
        self._succeeded &= succeeded
        if not self._open:
            for done in self._callbacks:
                done(now, self._succeeded)
