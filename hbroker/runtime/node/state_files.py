"""The state files of a node: what its next run must know (§5.10).

    FILE                 the subtrees that it delegated; at the root, also the limit of its epochs
    FILE.claims          the subtrees that it claims, once an order has changed them (§5.7)
    FILE.subscriptions   the subscriptions of its clients, and their persistent sessions; with a store, wills
    FILE.revoked         the revoked tokens that it knows, if it requires tokens (§5.11)
    FILE.checkpoint      when it was last alive, and how much of the other files was synced

Without the first file, a parent that restarts would count its children's subtrees as its own until they
renew, and a topic would have two owners. Without the third file, the node would know no subscribers, and
would acknowledge messages that reach nobody: publishers come back at once, while subscribers take up to a
keep-alive to notice the restart. So a node hands over to its next run, as one owner does to another (§5.4).

All files survive the process and the host (`hbroker.storage`). A promise to others may be given once
`durable` shows that its record is on the disk. If records were lost, `RestoredState` says so. Then the node
waits until each child and subscriber that it may have forgotten has no lease any more, or is back (§5.8,
§5.9).

Before `hbroker up` starts a network again, its launcher knows that none of its nodes is alive. So no node
needs to wait for the leases that it granted to another of them (`forget_stopped_nodes`). If nodes have
stores, they keep the subtrees that they had, at their present addresses (`change_addresses`).
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from google.protobuf.message import DecodeError

from hbroker._proto import packet_pb2 as pb
from hbroker.addresses import Address
from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.ownership.epoch_clock import LIMIT_AHEAD_MS
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.sessions.subscription_store import Subscription, record_of, subscription_from
from hbroker.protocol.storage import EpochLimit, RestoredState, SavedSession, SavedWill, Storage
from hbroker.storage.checkpoint import Instant
from hbroker.storage.disk import Disk, make_folder
from hbroker.storage.record_file import Damage, FileContent, RecordFile
from hbroker.storage.record_format import header_from, read_records
from hbroker.storage.store import Store
from hbroker.subtree import depth, prefixes

__all__ = ["NodeStateFiles", "boot_instant", "forget_stopped_nodes", "saved_revoked"]

DELEGATIONS: Final = 1
CLAIMS: Final = 2
SUBSCRIPTIONS: Final = 3
REVOKED: Final = 4

_SUFFIXES: Final = {
    DELEGATIONS: "",
    CLAIMS: ".claims",
    SUBSCRIPTIONS: ".subscriptions",
    REVOKED: ".revoked",
}
_SLACKS: Final = {DELEGATIONS: 1 << 16, CLAIMS: 1 << 12, SUBSCRIPTIONS: 1 << 20, REVOKED: 1 << 16}
"""Bytes by which a file may grow beyond twice its live records (`record_file.SLACK_BYTES`)."""
_EPOCH_LIMIT_KEY: Final = b"\0epoch_limit"
"""Is no subtree: the levels of a topic do not contain U+0000 (MQTT 5 §1.5.4)."""
_CLAIMS_KEY: Final = b"claims"
_SESSION: Final = struct.Struct("<QI")
_SEQUENCE: Final = struct.Struct(">I")
"""A record of a revoked token begins with its number (`identity.revocation_list`)."""
_NO_GROUP: Final = 0xFFFF_FFFF
"""Stands for the length of a group in the key of a record about the session itself. A group is shorter."""
_WILL: Final = 0xFFFF_FFFE
"""The same, in the key of a record about the session's will."""


class NodeStateFiles(Storage):
    """The state files of one node; `Storage` describes what can be noted.

    `configured`: the subtrees in its settings. Claims that orders changed count only under the settings under
    which they were changed. If the settings differ now, the settings count.
    """

    def __init__(
        self,
        path: Path,
        configured: Sequence[str],
        *,
        disk: Disk | None = None,
        new_id: Callable[[], int] = lambda: secrets.randbits(63) + 1,
        instant: Callable[[], Instant] | None = None,
    ) -> None:
        self.path = path
        """The path of the first file."""
        disk = disk or Disk()
        self._configured = list(configured)
        self._files = {
            kind: RecordFile(
                path.with_name(f"{path.name}{suffix}"),
                kind,
                new_id=new_id,
                disk=disk,
                slack_bytes=_SLACKS[kind],
            )
            for kind, suffix in _SUFFIXES.items()
        }
        checkpoint = path.with_name(f"{path.name}.checkpoint")
        self.store = Store(self._files, checkpoint, disk, instant or boot_instant)
        """Writes what was noted (`flush`), and that this run is alive (`touch`)."""
        self.changed: Callable[[], None] = lambda: None
        """Called whenever there is something to `flush`."""
        self.is_overdue: Callable[[], bool] = lambda: False
        """Whether a `flush` has taken so long that it counts as failed."""

    @property
    def paths(self) -> list[Path]:
        """All files that may be there."""
        names = (*_SUFFIXES.values(), ".checkpoint")
        return [self.path.with_name(f"{self.path.name}{suffix}") for suffix in names]

    # Change

    def load(self) -> RestoredState:
        """Reads and repairs the files of the last run, and begins this run. Raises OSError."""
        restored, downtime_us = self._read()
        restored.is_same_boot = downtime_us is not None
        if downtime_us is not None and downtime_us >= timers.IDLE_TIMEOUT:
            # The sessions that are not persistent have ended in the meantime (§3.5). The others are offline.
            ended_at = time.time_ns() // 1000 - downtime_us
            for session in list(restored.sessions.values()):
                if session.offline_since is None:
                    restored.sessions[session.session] = replace(session, offline_since=ended_at)
            restored.subscriptions = [s for s in restored.subscriptions if s.session in restored.sessions]
            restored.has_lost_subscriptions = False  # But not `has_lost_sessions`: they may be persistent.
            kept = [_subscription_entry(subscription, False) for subscription in restored.subscriptions]
            kept += map(_session_entry, restored.sessions.values())
            kept += map(_will_entry, restored.wills)
            with suppress(OSError):  # If this fails, the next run only waits longer than it must.
                self._files[SUBSCRIPTIONS].replace(kept)
        if restored.epoch_limit is not None:
            # This run's first limit may not reach the disk. The next run must begin above it all the same.
            raised = restored.epoch_limit.limit + LIMIT_AHEAD_MS
            self.save_epoch_limit(replace(restored.epoch_limit, limit=raised))
            self.store.flush()  # If this fails, the next run begins at the same limit.
        self.store.save_checkpoint()
        return restored

    def read(self) -> RestoredState:
        """Returns what the last run knew, without beginning a run. Raises OSError."""
        restored, _ = self._read()
        self.store.close()
        return restored

    def discard_obsolete(self, is_over: Callable[[Delegation], bool]) -> None:
        """Before a network starts: discards the claims that orders changed, and the delegations for which
        `is_over` returns true. Raises OSError."""
        restored, _ = self._read()
        if restored.claims is not None:
            self._files[CLAIMS].replace([])
        self._change_delegations(restored, [cut for cut in restored.delegations if not is_over(cut)])
        self.store.close()

    def change_addresses(self, addresses: Mapping[str, Address]) -> None:
        """Before a network starts: these nodes, none of which is alive, will have these addresses. Their
        parents take them for the holders of their subtrees there, too. Raises OSError."""
        restored, _ = self._read()
        present = [
            replace(delegation, address=addresses.get(delegation.node, delegation.address))
            for delegation in restored.delegations
        ]
        self._change_delegations(restored, present)
        self.store.close()

    def add_sessions(self, other: RestoredState) -> RestoredState:
        """Before the node starts: it also has the persistent sessions of another node, with their
        subscriptions and wills. Of what both have, that of this node counts. Returns what this
        node had. Raises OSError."""
        restored, _ = self._read()
        persistent = [s for s in other.subscriptions if s.session in other.sessions]
        subscriptions = {(s.session, s.key): s for s in (*persistent, *restored.subscriptions)}
        sessions = other.sessions | restored.sessions
        wills = {will.session: will for will in (*other.wills, *restored.wills)}
        entries = [_subscription_entry(subscription, False) for subscription in subscriptions.values()]
        entries += map(_session_entry, sessions.values())
        entries += map(_will_entry, wills.values())
        is_incomplete = restored.has_lost_subscriptions or other.has_lost_subscriptions
        self._files[SUBSCRIPTIONS].replace(entries, is_incomplete=is_incomplete)
        self.store.close()
        return restored

    def save_delegation(self, delegation: Delegation, ended: bool) -> None:
        self._put(DELEGATIONS, *_delegation_entry(delegation, ended))

    def save_epoch_limit(self, limit: EpochLimit) -> None:
        self._put(DELEGATIONS, *_epoch_limit_entry(limit))

    def save_claims(self, claims: Sequence[str]) -> None:
        value = json.dumps({"configured": self._configured, "claims": list(claims)})
        self._put(CLAIMS, _CLAIMS_KEY, value.encode())

    def save_subscription(self, subscription: Subscription, ended: bool) -> None:
        self._put(SUBSCRIPTIONS, *_subscription_entry(subscription, ended))

    def save_session(self, session: SavedSession) -> None:
        self._put(SUBSCRIPTIONS, *_session_entry(session))

    def end_session(self, session: int) -> None:
        self._put(SUBSCRIPTIONS, _session_key(session), b"")

    def save_will(self, will: SavedWill) -> None:
        self._put(SUBSCRIPTIONS, *_will_entry(will))

    def end_will(self, session: int) -> None:
        self._put(SUBSCRIPTIONS, _SESSION.pack(session, _WILL), b"")

    def save_revoked(self, authority: bytes, record: bytes) -> None:
        self._put(REVOKED, authority + record[: _SEQUENCE.size], record)

    def end_revoked(self, authority: bytes, count: int) -> None:
        for sequence in range(1, count + 1):
            self._put(REVOKED, authority + _SEQUENCE.pack(sequence), b"")

    def clear_lost_delegations(self) -> None:
        self.store.complete(DELEGATIONS)
        self.changed()

    def clear_lost_subscriptions(self) -> None:
        self.store.complete(SUBSCRIPTIONS)
        self.changed()

    # Read

    @property
    def written(self) -> int:
        return self.store.written

    @property
    def durable(self) -> int:
        return self.store.durable

    @property
    def is_failing(self) -> bool:
        return self.store.fault is not None or self.is_overdue()

    # Reading

    def _change_delegations(self, restored: RestoredState, delegations: Sequence[Delegation]) -> None:
        """Replaces the delegations that were restored by these, if they differ. Raises OSError."""
        if delegations != restored.delegations:
            entries = [_delegation_entry(delegation, ended=False) for delegation in delegations]
            if restored.epoch_limit is not None:
                entries.append(_epoch_limit_entry(restored.epoch_limit))
            self._files[DELEGATIONS].replace(entries, is_incomplete=restored.has_lost_delegations)

    def _put(self, kind: int, key: bytes, value: bytes) -> None:
        self.store.put(kind, key, value)
        self.changed()

    def _read(self) -> tuple[RestoredState, int | None]:
        make_folder_of(self.path)
        opened, downtime_us = self.store.open()
        restored = RestoredState()
        for kind, found in opened.items():
            restored.damage += found.damage
            if found.torn:
                restored.torn[self._files[kind].path] = found.torn
        self._parse(opened[DELEGATIONS], DELEGATIONS, restored)
        self._parse(opened[CLAIMS], CLAIMS, restored)
        self._parse(opened[SUBSCRIPTIONS], SUBSCRIPTIONS, restored)
        restored.revoked = _revoked_from(opened[REVOKED].entries)
        restored.has_lost_delegations |= self._files[DELEGATIONS].header.is_incomplete
        restored.has_lost_subscriptions |= self._files[SUBSCRIPTIONS].header.is_incomplete
        restored.has_lost_sessions = restored.has_lost_subscriptions
        return restored, downtime_us

    def _parse(self, opened: FileContent, kind: int, restored: RestoredState) -> None:
        """Decodes the records of one file. A record that is whole and cannot be decoded was written by
        another version; it counts as damaged."""
        unparsable = []
        for key, value in opened.entries.items():
            try:
                self._parse_entry(kind, key, value, restored)
            except (ValueError, TypeError, KeyError, DecodeError):
                unparsable.append(key)
        if unparsable:
            file = self._files[kind]
            what = f"{len(unparsable)} records make no sense"
            restored.damage.append(Damage(file.path, 0, 0, what, None))
            rest = ((key, value) for key, value in opened.entries.items() if key not in unparsable)
            with suppress(OSError):  # If this fails, the next start finds the same records.
                file.replace(rest, is_incomplete=True)
            restored.has_lost_delegations |= kind == DELEGATIONS
            restored.has_lost_subscriptions |= kind == SUBSCRIPTIONS

    def _parse_entry(self, kind: int, key: bytes, value: bytes, restored: RestoredState) -> None:
        if kind == DELEGATIONS:
            entry = json.loads(value)
            if "epoch_limit" in entry:
                restored.epoch_limit = EpochLimit(int(entry["epoch_limit"]), int(entry["saved_at"]))
            else:
                restored.delegations.append(_delegation_from(entry))
        elif kind == SUBSCRIPTIONS and _has_mark(key, _WILL):
            restored.wills.append(_will_from(json.loads(value)))
        elif kind == SUBSCRIPTIONS and _has_mark(key, _NO_GROUP):
            session = SavedSession(**json.loads(value))
            restored.sessions[session.session] = session
        elif kind == SUBSCRIPTIONS:
            subscription = subscription_from(pb.SubscriptionRecord.FromString(value))
            if subscription is None:
                raise ValueError("it has no address")
            restored.subscriptions.append(subscription)
        else:
            stored = json.loads(value)
            if stored["configured"] == self._configured:
                restored.claims = [str(claim) for claim in stored["claims"]]


def forget_stopped_nodes(state_files: Mapping[str, NodeStateFiles]) -> list[Damage]:
    """Removes from the state files of these nodes, none of which is alive, the claims that orders changed,
    and the delegations to each other. It keeps a delegation if a node that is not among them holds, or may
    hold, a part of the subtree.

    `state_files`: the state files by the node's name. Returns the damage that was found. Raises OSError.
    """
    last_states = {name: files.read() for name, files in state_files.items()}
    kept: set[str] = set()
    for restored in last_states.values():
        for cut in restored.delegations:
            holder = last_states.get(cut.node)
            if holder is None or holder.has_lost_delegations:  # It is unknown what this holder has delegated.
                kept.update(prefixes(cut.subtree, depth(cut.subtree)))
    for files in state_files.values():
        files.discard_obsolete(lambda cut: cut.node in last_states and cut.subtree not in kept)
    return [damage for restored in last_states.values() for damage in restored.damage]


def saved_revoked(file: Path) -> dict[bytes, list[bytes]]:
    """The records of revoked tokens in the file of a node, by the id of their authority, in order. Changes
    nothing, and the node may run. Raises OSError."""
    data = file.read_bytes()
    header = header_from(data)
    if header is None or header.kind != REVOKED:
        return {}
    return _revoked_from(read_records(data, header.id).entries)


def _revoked_from(entries: Mapping[bytes, bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for key, record in sorted(entries.items()):
        found.setdefault(key[: -_SEQUENCE.size], []).append(record)
    return found


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


def _epoch_limit_entry(limit: EpochLimit) -> tuple[bytes, bytes]:
    entry = {"epoch_limit": limit.limit, "saved_at": limit.saved_at}
    return _EPOCH_LIMIT_KEY, json.dumps(entry).encode()


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


def _session_key(session: int) -> bytes:
    return _SESSION.pack(session, _NO_GROUP)


def _has_mark(key: bytes, mark: int) -> bool:
    return len(key) == _SESSION.size and _SESSION.unpack(key)[1] == mark


def _session_entry(session: SavedSession) -> tuple[bytes, bytes]:
    return _session_key(session.session), json.dumps(asdict(session)).encode()


def _will_entry(will: SavedWill) -> tuple[bytes, bytes]:
    entry = {**asdict(will), "publish": base64.b64encode(will.publish).decode()}
    return _SESSION.pack(will.session, _WILL), json.dumps(entry).encode()


def _will_from(entry: Mapping[str, Any]) -> SavedWill:
    return SavedWill(**{**entry, "publish": base64.b64decode(entry["publish"], validate=True)})


def _subscription_entry(subscription: Subscription, ended: bool) -> tuple[bytes, bytes]:
    group = subscription.group.encode()
    key = _SESSION.pack(subscription.session, len(group)) + group + subscription.filter.encode()
    return key, b"" if ended else record_of(subscription).SerializeToString()
