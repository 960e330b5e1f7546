"""What a node must know again after a restart: who had subscribed.

Messages that it had not acknowledged come again from their publishers as soon as it serves. Those whom they
are for take up to a keep-alive to notice that it was gone; without this file the node would find nobody
subscribed, and acknowledge to nobody's good. So it hands over to its next run, as one owner does to another
(§5.4): the file holds the very records, a later one of a session and filter in place of an earlier, one
without an address where the subscription has ended. It is written before a subscription is active, and like
`DelegationFile` it outlives the process, not the host. A session ends when it was silent for too long (§3.5);
so what is read counts only if the run that wrote it was alive a short time ago, as the file's time says.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.subscribers import Key, Subscription, ended_of, record_of, subscription_from
from hbroker.runtime.memory import UnreadableMemory

__all__ = ["SubscriptionFile"]

SLACK_BYTES: Final = 1 << 20
"""A file is rewritten once it has grown to twice what was live, and this much."""

_LENGTH: Final = struct.Struct("<I")


class SubscriptionFile:
    """The subscriptions of one node, as records that are appended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = path.stat().st_size if path.exists() else 0
        self._rewrite_at = SLACK_BYTES

    def note(self, subscription: Subscription, ended: bool) -> None:
        """A subscription was made or changed, or has ended. Raises OSError."""
        record = ended_of(subscription) if ended else record_of(subscription)
        self._append([record])
        if self._size > self._rewrite_at:
            self._rewrite(self._read())

    def touch(self) -> None:
        """This run is alive. To be called every second or so."""
        if self._size:
            os.utime(self._path)

    def recall(self) -> list[Subscription]:
        """Those whose sessions the earlier run had, and that have not ended since.

        Raises OSError, UnreadableMemory.
        """
        if not self._size:
            return []
        silent_us = (time.time() - self._path.stat().st_mtime) * timers.SECOND
        recalled = self._read() if silent_us < timers.IDLE_TIMEOUT else []
        self._rewrite(recalled)
        return recalled

    def _read(self) -> list[Subscription]:
        """What was cut off in the middle of a record is passed over."""
        data = self._path.read_bytes()
        live: dict[tuple[int, Key], Subscription] = {}
        try:
            for record in _records(data):
                key = record.session, (record.group, record.filter)
                subscription = subscription_from(record)
                live.pop(key, None)
                if subscription is not None:
                    live[key] = subscription
        except DecodeError as error:
            raise UnreadableMemory(f"{self._path} does not hold subscriptions; remove it") from error
        return list(live.values())

    def _append(self, records: Iterable[pb.SubscriptionRecord]) -> None:
        encoded = b"".join(_LENGTH.pack(record.ByteSize()) + record.SerializeToString() for record in records)
        with self._path.open("ab", buffering=0) as file:
            file.write(encoded)
        self._size += len(encoded)

    def _rewrite(self, subscriptions: Iterable[Subscription]) -> None:
        draft = SubscriptionFile(self._path.with_name(f"{self._path.name}.new"))
        draft._path.unlink(missing_ok=True)
        draft._size = 0
        draft._append(map(record_of, subscriptions))
        os.replace(draft._path, self._path)
        self._size = draft._size
        self._rewrite_at = 2 * self._size + SLACK_BYTES


def _records(data: bytes) -> Iterator[pb.SubscriptionRecord]:
    at = 0
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + length > len(data):
            return
        yield pb.SubscriptionRecord.FromString(data[at : at + length])
        at += length
