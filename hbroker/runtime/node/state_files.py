"""The state files of a node: what its next run must know (§5.10).

    FILE                 the subtrees that it delegated
    FILE.claims          the subtrees that it claims, once an order has changed them (§5.7)
    FILE.subscriptions   the subscriptions of its clients
    FILE.checkpoint      when it was last alive, and how much of the other files was synced

Without the first file, a parent that restarts would count its children's subtrees as its own until they
renew, and a topic would have two owners. Without the third file, the node would know no subscribers, and
would acknowledge messages that reach nobody: publishers come back at once, while subscribers take up to a
keep-alive to notice the restart. So a node hands over to its next run, as one owner does to another (§5.4).

All files survive the process and the host (`hbroker.storage`). A promise to others may be given once
`durable` shows that its record is on the disk. If records were lost, `Recalled` says so. Then the node waits
until each child and subscriber that it may have forgotten has no lease any more, or is back (§5.8, §5.9).
"""

from __future__ import annotations

import json
import os
import secrets
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from google.protobuf.message import DecodeError

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.sessions.subscription_store import Subscription, record_of, subscription_from
from hbroker.storage.checkpoint import Instant
from hbroker.storage.disk import Disk, LocalDisk, make_folder
from hbroker.storage.record_file import Damage, Opened, RecordFile
from hbroker.storage.store import Fault, Store

__all__ = ["NodeStateFiles", "Recalled", "boot_instant"]

DELEGATIONS: Final = 1
CLAIMS: Final = 2
SUBSCRIPTIONS: Final = 3

_SUFFIXES: Final = {DELEGATIONS: "", CLAIMS: ".claims", SUBSCRIPTIONS: ".subscriptions"}
_SLACKS: Final = {DELEGATIONS: 1 << 16, CLAIMS: 1 << 12, SUBSCRIPTIONS: 1 << 20}
"""Bytes by which a file may grow beyond twice its live records (`record_file.SLACK_BYTES`)."""
_CLAIMS_KEY: Final = b"claims"
_SESSION: Final = struct.Struct("<QI")
_NO_GROUP: Final = 0xFFFF_FFFF
"""Stands for the length of a group in the key of a record about the session itself. A group is shorter."""


@dataclass(slots=True)
class Recalled:
    """What the last run knew.

    `requested_subtrees`: the claims; None: no order has changed them. `away`: the sessions that were offline.
    `forgets_delegations`, `forgets_subscriptions`: records of that kind were lost. `damage`: the damage that
    was found. `torn`: how many bytes of each file were truncated, because they were being written when the
    last run ended.
    """

    delegations: list[Delegation] = field(default_factory=list)
    requested_subtrees: list[str] | None = None
    subscriptions: list[Subscription] = field(default_factory=list)
    away: set[int] = field(default_factory=set)
    forgets_delegations: bool = False
    forgets_subscriptions: bool = False
    damage: list[Damage] = field(default_factory=list)
    torn: dict[Path, int] = field(default_factory=dict)


class NodeStateFiles:
    """The state files of one node. `configured`: the subtrees in its settings. Claims that orders changed
    count only under the settings under which they were changed. If the settings differ now, the settings
    count."""

    def __init__(
        self,
        path: Path,
        configured: Sequence[str],
        *,
        disk: Disk | None = None,
        new_id: Callable[[], int] = lambda: secrets.randbits(63) + 1,
        instant: Callable[[], Instant] | None = None,
    ) -> None:
        self._path = path
        self._disk = disk or LocalDisk()
        self._configured = list(configured)
        self._files = {
            kind: RecordFile(
                path.with_name(f"{path.name}{suffix}"),
                kind,
                new_id=new_id,
                disk=self._disk,
                slack_bytes=_SLACKS[kind],
            )
            for kind, suffix in _SUFFIXES.items()
        }
        self._checkpoint = path.with_name(f"{path.name}.checkpoint")
        self._store = Store(self._files, self._checkpoint, self._disk, instant or boot_instant)
        self.changed: Callable[[], None] = lambda: None
        """Called whenever there is something to `flush`."""

    # Change

    def recall(self) -> Recalled:
        """Reads and repairs the files of the last run, and begins this run. Raises OSError."""
        recalled, silent_us = self._read()
        if silent_us is not None and silent_us >= timers.IDLE_TIMEOUT:
            recalled.subscriptions = []  # The sessions have ended in the meantime (§3.5).
            recalled.forgets_subscriptions = False
            with suppress(OSError):  # If this fails, the next run only waits longer than it must.
                self._files[SUBSCRIPTIONS].replace([])
        self._store.touch()
        return recalled

    def review(self) -> Recalled:
        """Returns what the last run knew, without beginning a run. Raises OSError."""
        recalled, _ = self._read()
        self._store.close()
        return recalled

    def begin_anew(self, is_over: Callable[[Delegation], bool]) -> None:
        """Before a network starts: discards the claims that orders changed, and the delegations for which
        `is_over` returns true. Raises OSError."""
        recalled, _ = self._read()
        if recalled.requested_subtrees is not None:
            self._files[CLAIMS].replace([])
        kept = [delegation for delegation in recalled.delegations if not is_over(delegation)]
        if len(kept) < len(recalled.delegations):
            entries = [_delegation_entry(delegation, ended=False) for delegation in kept]
            self._files[DELEGATIONS].replace(entries, is_incomplete=recalled.forgets_delegations)
        self._store.close()

    def note_delegation(self, delegation: Delegation, ended: bool) -> None:
        """Notes a delegation that is about to be made or changed, or that has ended."""
        self._put(DELEGATIONS, *_delegation_entry(delegation, ended))

    def note_requested_subtrees(self, requested_subtrees: Sequence[str]) -> None:
        """Notes the subtrees that the node claims from now on."""
        value = json.dumps({"configured": self._configured, "claims": list(requested_subtrees)})
        self._put(CLAIMS, _CLAIMS_KEY, value.encode())

    def note_subscription(self, subscription: Subscription, ended: bool) -> None:
        """Notes a subscription that was made or changed, or that has ended."""
        self._put(SUBSCRIPTIONS, *_subscription_entry(subscription, ended))

    def note_away(self, session: int, is_away: bool) -> None:
        """Notes that a session is offline, or that it has a link again."""
        record = pb.SubscriptionRecord(session=session, away=True)
        self._put(
            SUBSCRIPTIONS, _SESSION.pack(session, _NO_GROUP), record.SerializeToString() if is_away else b""
        )

    def know_delegations(self) -> None:
        """Notes that no delegation is unknown any more: each forgotten lease has ended, or its child has
        renewed (§5.9)."""
        self._store.complete(DELEGATIONS)
        self.changed()

    def know_subscriptions(self) -> None:
        """Notes that no subscription is unknown any more: recovery from a damaged file is over (§5.8)."""
        self._store.complete(SUBSCRIPTIONS)
        self.changed()

    def flush(self) -> bool:
        """Writes and syncs everything that was noted. False: the disk failed, and everything waits for the
        next flush."""
        return self._store.flush()

    def touch(self) -> None:
        """Writes that this run is alive. The caller calls it about every second, also while `flush` fails or
        hangs."""
        self._store.touch()

    def close(self) -> None:
        """Closes the files, after the last `flush`."""
        self._store.close()

    # Read

    @property
    def path(self) -> Path:
        """The path of the first file."""
        return self._path

    @property
    def written(self) -> int:
        """The mark of the last note (`hbroker.storage.store`)."""
        return self._store.written

    @property
    def durable(self) -> int:
        """The mark up to which all notes are on the disk."""
        return self._store.durable

    @property
    def fault(self) -> Fault | None:
        """Why nothing can be written now."""
        return self._store.fault

    @property
    def hindrance(self) -> Fault | None:
        """Another fault of the disk, which loses nothing."""
        return self._store.hindrance

    # Reading

    def _put(self, kind: int, key: bytes, value: bytes) -> None:
        self._store.put(kind, key, value)
        self.changed()

    def _read(self) -> tuple[Recalled, int | None]:
        make_folder_of(self._path)
        opened, silent_us = self._store.open()
        recalled = Recalled()
        for kind, found in opened.items():
            recalled.damage += found.damage
            if found.torn:
                recalled.torn[self._files[kind].path] = found.torn
        self._take(opened[DELEGATIONS], DELEGATIONS, recalled)
        self._take(opened[CLAIMS], CLAIMS, recalled)
        self._take(opened[SUBSCRIPTIONS], SUBSCRIPTIONS, recalled)
        recalled.forgets_delegations |= self._files[DELEGATIONS].header.is_incomplete
        recalled.forgets_subscriptions |= self._files[SUBSCRIPTIONS].header.is_incomplete
        return recalled, silent_us

    def _take(self, opened: Opened, kind: int, recalled: Recalled) -> None:
        """Decodes the records of one file. A record that is whole and cannot be decoded was written by
        another version; it counts as damaged."""
        strange = []
        for key, value in opened.entries.items():
            try:
                self._take_entry(kind, value, recalled)
            except (ValueError, TypeError, KeyError, DecodeError):
                strange.append(key)
        if strange:
            file = self._files[kind]
            what = f"{len(strange)} records make no sense"
            recalled.damage.append(Damage(file.path, 0, 0, what, None))
            rest = ((key, value) for key, value in opened.entries.items() if key not in strange)
            with suppress(OSError):  # If this fails, the next start finds the same records.
                file.replace(rest, is_incomplete=True)
            recalled.forgets_delegations |= kind == DELEGATIONS
            recalled.forgets_subscriptions |= kind == SUBSCRIPTIONS

    def _take_entry(self, kind: int, value: bytes, recalled: Recalled) -> None:
        if kind == DELEGATIONS:
            recalled.delegations.append(_delegation_from(json.loads(value)))
        elif kind == SUBSCRIPTIONS:
            record = pb.SubscriptionRecord.FromString(value)
            if record.away:
                recalled.away.add(record.session)
                return
            subscription = subscription_from(record)
            if subscription is None:
                raise ValueError("it has no address")
            recalled.subscriptions.append(subscription)
        else:
            stored = json.loads(value)
            if stored["configured"] == self._configured:
                recalled.requested_subtrees = [str(claim) for claim in stored["claims"]]


def boot_instant() -> Instant:
    """The present time, by a clock that goes on while the host is suspended."""
    return Instant(_boot(), time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)


def make_folder_of(path: Path) -> None:
    """Creates the folder of a file, if it is missing. Raises OSError."""
    if not path.parent.is_dir():
        make_folder(path.parent)


@cache
def _boot() -> bytes:
    """The id of the host's boot. If the host has none, a random id, which no other run of the process has."""
    try:
        return UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip()).bytes
    except (OSError, ValueError):
        return os.urandom(16)


def _delegation_entry(delegation: Delegation, ended: bool) -> tuple[bytes, bytes]:
    entry = {
        "subtree": delegation.subtree,
        "node": delegation.node,
        "address": list(delegation.address),
        "incarnation": delegation.incarnation,
        "epoch": delegation.epoch,
        "policy": delegation.policy.value,
    }
    return delegation.subtree.encode(), b"" if ended else json.dumps(entry).encode()


def _delegation_from(entry: Mapping[str, Any]) -> Delegation:
    host, port = entry["address"]
    return Delegation(
        subtree=str(entry["subtree"]),
        node=str(entry["node"]),
        address=(str(host), int(port)),
        incarnation=int(entry["incarnation"]),
        epoch=int(entry["epoch"]),
        policy=LeasePolicy(entry["policy"]),
        link=None,
        until=0,
    )


def _subscription_entry(subscription: Subscription, ended: bool) -> tuple[bytes, bytes]:
    group = subscription.group.encode()
    key = _SESSION.pack(subscription.session, len(group)) + group + subscription.filter.encode()
    return key, b"" if ended else record_of(subscription).SerializeToString()
