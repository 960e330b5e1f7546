"""The revoked tokens that a node knows, and how they travel down the tree (§5.11).

A node has a list of each authority that it believes: two while one replaces the other. A token is revoked if
one of its blocks is in any of them. Records come from three sources:

- what the run before saved;
- the file of the authority, if this host has it;
- the parents. A parent sends what is new to all its children at once. A JOIN says how many records the joiner
  has, and a grant is followed by those that it lacks.

The node verifies the signature of each record from the file or a parent. So a parent can withhold records,
and nothing else. Records are verified in small steps, because leases must not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.identity.revocation_list import (
    RECORD_BYTES,
    InvalidRecord,
    RevocationAuthority,
    RevocationList,
    RevokedToken,
)
from hbroker.protocol.core import NodeCore
from hbroker.protocol.events import Diagnostics, RevocationsRefused
from hbroker.protocol.packets import pack
from hbroker.protocol.storage import Storage

__all__ = ["MOST_AT_ONCE", "PACKET_RECORDS", "Revocations"]

PACKET_RECORDS: Final = 10
"""Records of one packet. They have 940 bytes, so the packet fits a datagram of 1,200 bytes (§3.4)."""
MOST_AT_ONCE: Final = 16
"""Packets that a parent sends before the child asks for more."""
_STEP: Final = 64
"""Records of the file that are verified at a time. 64 take about 10 ms."""


class Revocations:
    """The lists of one node.

    `restored`: the records that the run before saved, by the id of their authority. `authorities`: those that
    are believed. `on_revoked(ids)` is called with the ids of blocks that have been revoked.
    """

    def __init__(
        self,
        core: NodeCore,
        storage: Storage,
        diagnostics: Diagnostics,
        restored: Mapping[bytes, Sequence[bytes]],
        authorities: Sequence[RevocationAuthority],
        on_revoked: Callable[[Sequence[bytes]], None],
    ) -> None:
        self._core = core
        self._storage = storage
        self._diagnostics = diagnostics
        self._on_revoked = on_revoked
        self._lists = {authority.id: RevocationList(authority) for authority in authorities}
        self._file: tuple[RevocationList, bytes] | None = None
        """The list of the file, and its records, while some of them are to be verified."""
        self._children: dict[int, frozenset[bytes]] = {}
        """The links to children, and which authorities each of them believes."""
        for id, records in restored.items():
            found = self._lists.get(id)
            if found is None:
                storage.end_revoked(id, len(records))
                continue
            try:
                found.restore(records)
            except InvalidRecord:
                diagnostics.count("revoked_lost")  # The parent or the file has them.

    # Change

    def believe(self, authorities: Iterable[RevocationAuthority]) -> None:
        """Believes these authorities from now on. Lists of others are forgotten: their tokens are not valid
        any more."""
        before = self._lists
        self._lists = {each.id: before.get(each.id, RevocationList(each)) for each in authorities}
        for id in before.keys() - self._lists.keys():
            self._storage.end_revoked(id, len(before[id]))
        self._file = None  # It is read again.

    def take_file(self, authority: bytes, records: bytes) -> None:
        """The file of an authority has these records, one behind the other. `handle_timeout` verifies those
        that are new."""
        found = self._lists.get(authority)
        records = records[: len(records) // RECORD_BYTES * RECORD_BYTES]  # The last one may be written now.
        if found is None:
            self._refuse("it is the list of an authority that this node does not believe")
        elif found.is_beginning_of(records):
            self._file = found, records
        else:
            lacks = found.holds(records)
            self._refuse(
                "it lacks records that this node has" if lacks else "it differs from what this node has"
            )

    def handle_join(self, link: int, counts: Iterable[pb.RevokedCount]) -> None:
        """A child was granted a lease: sends the records that it lacks."""
        known = {count.authority: count.count for count in counts if count.authority in self._lists}
        self._children[link] = frozenset(known)
        for authority, count in known.items():
            self._send([link], self._lists[authority], count + 1)

    def handle_revoked(self, link: int, packet: pb.Revoked, *, is_parent: bool) -> bool:
        """Handles REVOKED: records of a parent, or the request of a child. Returns whether it was
        expected."""
        found = self._lists.get(packet.authority)
        if is_parent:
            if found is not None:
                self._take(link, found, packet)
        elif link in self._children and not packet.records:
            if found is not None:
                self._send([link], found, packet.first)
        else:
            return False
        return True

    def handle_link_down(self, link: int) -> None:
        """A link has ended."""
        self._children.pop(link, None)

    def handle_timeout(self) -> None:
        """Verifies some records of the file."""
        if self._file is None:
            return
        found, records = self._file
        begin = len(found) * RECORD_BYTES
        ends = range(begin + RECORD_BYTES, len(records) + 1, RECORD_BYTES)
        fault = self._append(found, (records[end - RECORD_BYTES : end] for end in ends[:_STEP]))
        if fault is not None:
            self._refuse(f"record {len(found) + 1}: {fault}")
        if fault is not None or len(ends) <= _STEP:
            self._file = None

    # Read

    def are_revoked(self, ids: Iterable[bytes]) -> bool:
        """Whether one of these blocks is revoked."""
        return any(id in found for id in ids for found in self._lists.values())

    def counts(self) -> list[pb.RevokedCount]:
        """How many records of each list this node has."""
        return [pb.RevokedCount(authority=id, count=len(found)) for id, found in self._lists.items()]

    def poll_timeout(self) -> int | None:
        """0: `handle_timeout` is due. None: it is not."""
        return None if self._file is None else 0

    def __len__(self) -> int:
        """How many records this node has."""
        return sum(map(len, self._lists.values()))

    def _take(self, link: int, found: RevocationList, packet: pb.Revoked) -> None:
        before = len(found)
        records = [each for each in packet.records[:PACKET_RECORDS] if not _is_known(found, each)]
        if records and self._append(found, records) is not None:
            # Forged; or some before it are missing, which come after the next renewal.
            self._diagnostics.drop("revoked_refused")
        if packet.more and len(found) > before:
            self._core.send(link, pack(pb.Revoked(authority=found.authority.id, first=len(found) + 1)))

    def _append(self, found: RevocationList, records: Iterable[bytes]) -> InvalidRecord | None:
        """Verifies records and takes them in, up to the first one that is not valid. Returns why it is
        not."""
        first, taken, fault = len(found) + 1, list[RevokedToken](), None
        for record in records:
            try:
                taken.append(found.append(record))
            except InvalidRecord as invalid:
                fault = invalid
                break
            self._storage.save_revoked(found.authority.id, record)
        if taken:
            self._on_revoked([token.id for token in taken])
            believing = [link for link, known in self._children.items() if found.authority.id in known]
            self._send(believing, found, first)
        return fault

    def _send(self, links: Iterable[int], found: RevocationList, first: int) -> None:
        """Sends records from the number `first` on."""
        records = found.records(first, PACKET_RECORDS * MOST_AT_ONCE)
        parts = [records[at : at + PACKET_RECORDS] for at in range(0, len(records), PACKET_RECORDS)]
        packets = [pb.Revoked(authority=found.authority.id, records=part) for part in parts]
        if packets:
            packets[-1].more = first + len(records) <= len(found)
        serialised = [pack(packet) for packet in packets]
        for link in links:
            # If the link has no room, the next renewal asks for the rest.
            all(self._core.send(link, packet) for packet in serialised)

    def _refuse(self, why: str) -> None:
        self._diagnostics.add_event(RevocationsRefused(why))


def _is_known(found: RevocationList, record: bytes) -> bool:
    return 0 < int.from_bytes(record[:4], "big") <= len(found)
