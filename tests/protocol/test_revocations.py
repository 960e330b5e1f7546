"""Lists of revoked tokens travel from parents to children (§5.11)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import cast

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.identity.revocation_list import (
    MOST_RECORDS,
    RECORD_BYTES,
    RevocationAuthority,
    RevokedToken,
    short_id,
)
from hbroker.identity.revoked_file import signed_record
from hbroker.protocol import revocations
from hbroker.protocol.core import NodeCore
from hbroker.protocol.events import Diagnostics, RevocationsRefused
from hbroker.protocol.packets import PACKET_ROOM, body_of
from hbroker.protocol.revocations import MOST_AT_ONCE, PACKET_RECORDS, Revocations
from hbroker.protocol.storage import Storage
from tests.identity.examples import AUTHORITY, OTHER_AUTHORITY

BELIEVED = RevocationAuthority.of(AUTHORITY.public_key)
OTHER = RevocationAuthority.of(OTHER_AUTHORITY.public_key)
COUNT = 400
IDS = [short_id(b"%d" % n) for n in range(1, COUNT + 1)]
RECORDS = [signed_record(AUTHORITY, RevokedToken(n, id, 0)) for n, id in enumerate(IDS, 1)]
OTHERS = [signed_record(OTHER_AUTHORITY, RevokedToken(n, id, 0)) for n, id in enumerate(IDS[:20], 1)]
UP, DOWN = 1, 2
"""The links of each node: to its parent, and to its child."""


class SavedRevocations(Storage):
    """A disk."""

    def __init__(self) -> None:
        self.saved: dict[bytes, dict[bytes, bytes]] = {}

    def save_revoked(self, authority: bytes, record: bytes) -> None:
        self.saved.setdefault(authority, {})[record[:4]] = record

    def end_revoked(self, authority: bytes, count: int) -> None:
        assert len(self.saved.pop(authority, {})) == count


class Peer:
    """A node as far as its lists are concerned, with a link to a parent and one to a child."""

    def __init__(
        self, authorities: Sequence[RevocationAuthority] = (BELIEVED,), disk: SavedRevocations | None = None
    ) -> None:
        self.disk = disk or SavedRevocations()
        self.diagnostics = Diagnostics()
        self.sent: deque[tuple[int, bytes]] = deque()
        self.room = 1_000_000
        self.revoked: list[bytes] = []
        restored = {id: list(records.values()) for id, records in self.disk.saved.items()}
        self.lists = Revocations(
            cast(NodeCore, self), self.disk, self.diagnostics, restored, authorities, self.revoked.extend
        )

    def send(self, link: int, packet: bytes) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.sent.append((link, packet))
        return True

    def read(self, records: Sequence[bytes], authority: RevocationAuthority = BELIEVED) -> None:
        """Reads a file with these records, and verifies them."""
        self.lists.take_file(authority.id, b"".join(records))
        while self.lists.poll_timeout() == 0:
            self.lists.handle_timeout()

    def is_refused(self, body: pb.Revoked, link: int = UP) -> bool:
        """Handles a packet. Returns whether something in it was refused."""
        before = self.diagnostics.counters["drop.revoked_refused"]
        assert self.lists.handle_revoked(link, body, is_parent=link == UP)
        return self.diagnostics.counters["drop.revoked_refused"] > before

    def refusals(self) -> list[str]:
        events = iter(self.diagnostics.poll, None)
        return [event.why for event in events if isinstance(event, RevocationsRefused)]

    def has(self, count: int) -> bool:
        """Whether it knows exactly the first ids."""
        known = [self.lists.are_revoked([id]) for id in IDS]
        return known == [True] * count + [False] * (COUNT - count)


class Line:
    """Nodes, each the child of the one before."""

    def __init__(self, *peers: Peer) -> None:
        self.peers = peers
        self.packets = 0

    def renew(self) -> None:
        """Every node renews its lease."""
        for parent, child in zip(self.peers, self.peers[1:], strict=False):
            parent.lists.handle_join(DOWN, child.lists.counts())
        self.run()

    def run(self) -> None:
        """Carries packets until there are none."""
        while any(peer.sent for peer in self.peers):
            for index, peer in enumerate(self.peers):
                if not peer.sent:
                    continue
                link, packet = peer.sent.popleft()
                assert len(packet) <= PACKET_ROOM
                body = body_of(packet)
                assert isinstance(body, pb.Revoked)
                self.packets += 1
                receiver = self.peers[index + (1 if link == DOWN else -1)]
                back = UP if link == DOWN else DOWN
                assert receiver.lists.handle_revoked(back, body, is_parent=back == UP)


def test_what_is_revoked_reaches_all_at_once() -> None:
    line = Line(Peer(), Peer(), Peer())
    line.renew()
    for count in (1, 2, 12, 13):
        line.peers[0].read(RECORDS[:count])
        line.run()
        assert all(peer.has(count) for peer in line.peers)
    assert line.packets == 2 * (1 + 1 + 1 + 1)
    assert line.peers[2].revoked == IDS[:13]


def test_who_comes_later_asks_until_it_has_all() -> None:
    parent, child = Peer(), Peer()
    parent.read(RECORDS)
    line = Line(parent, child)
    line.renew()
    assert child.has(COUNT)
    bursts = -(-COUNT // (PACKET_RECORDS * MOST_AT_ONCE))
    assert line.packets == COUNT // PACKET_RECORDS + bursts - 1
    line.packets = 0
    line.renew()
    assert line.packets == 0


def test_renewals_while_records_are_on_their_way_do_not_multiply_them() -> None:
    parent, child = Peer(), Peer()
    parent.read(RECORDS)
    line = Line(parent, child)
    for _ in range(5):
        parent.lists.handle_join(DOWN, child.lists.counts())
    line.run()
    assert child.has(COUNT)
    left = COUNT - MOST_AT_ONCE * PACKET_RECORDS
    requests = -(-left // (MOST_AT_ONCE * PACKET_RECORDS))
    assert line.packets == 5 * MOST_AT_ONCE + left // PACKET_RECORDS + requests


@pytest.mark.parametrize("seed", range(20))
def test_records_that_found_no_room_come_after_a_renewal(seed: int) -> None:
    random = Random(seed)
    line = Line(Peer(), Peer(), Peer())
    for count in sorted(random.sample(range(1, COUNT), 5)):
        for peer in line.peers:
            peer.room = random.randrange(20)
        line.peers[0].read(RECORDS[:count])
        line.renew()
    for peer in line.peers:
        peer.room = 1_000_000
    for _ in line.peers:
        line.renew()
    assert all(peer.has(count) for peer in line.peers)


def test_a_parent_can_only_withhold() -> None:
    child = Peer()
    forged = [signed_record(OTHER_AUTHORITY, RevokedToken(n, id, 0)) for n, id in enumerate(IDS, 1)]
    id = BELIEVED.id
    assert child.is_refused(pb.Revoked(authority=id, records=forged[:3], more=True))
    assert child.is_refused(pb.Revoked(authority=id, records=RECORDS[1:3], more=True))
    assert child.is_refused(pb.Revoked(authority=id, records=[b"", b"\0" * RECORD_BYTES], more=True))
    assert child.is_refused(pb.Revoked(authority=id, records=[RECORDS[0], forged[1], RECORDS[1]]))
    assert child.has(1)
    assert not child.is_refused(pb.Revoked(authority=id, records=[RECORDS[0], RECORDS[0]], more=True))
    assert not child.is_refused(pb.Revoked(authority=OTHER.id, records=OTHERS[:3], more=True))
    assert not child.is_refused(pb.Revoked(authority=id, more=True))
    assert child.has(1)
    assert not child.sent, "it asks only after it has learned something"
    assert child.disk.saved == {id: {RECORDS[0][:4]: RECORDS[0]}}


def test_one_packet_costs_no_more_than_a_full_one() -> None:
    child = Peer()
    assert not child.is_refused(pb.Revoked(authority=BELIEVED.id, records=RECORDS))
    assert child.has(PACKET_RECORDS)


def test_only_a_child_is_answered_and_only_a_parent_believed() -> None:
    parent = Peer()
    parent.read(RECORDS[:20])
    ask = pb.Revoked(authority=BELIEVED.id, first=11)
    assert not parent.lists.handle_revoked(DOWN, ask, is_parent=False)
    parent.lists.handle_join(DOWN, [pb.RevokedCount(authority=BELIEVED.id, count=20)])
    assert not parent.sent
    records = pb.Revoked(authority=BELIEVED.id, records=RECORDS[20:22])
    assert not parent.lists.handle_revoked(DOWN, records, is_parent=False)
    assert parent.has(20)
    for first, expected in ((11, 1), (1, 2), (21, 0), (0, 0), (2**64 - 1, 0)):
        ask.first = first
        assert parent.lists.handle_revoked(DOWN, ask, is_parent=False)
        assert len(parent.sent) == expected
        parent.sent.clear()
    parent.lists.handle_link_down(DOWN)
    ask.first = 1
    assert not parent.lists.handle_revoked(DOWN, ask, is_parent=False)
    parent.read(RECORDS[:30])
    assert not parent.sent


def test_a_restarted_node_knows_what_it_knew_and_needs_nobody() -> None:
    line = Line(Peer(), Peer())
    line.renew()
    line.peers[0].read(RECORDS[:30])
    line.run()
    again = Peer(disk=line.peers[1].disk)
    assert again.has(30)
    del again.disk.saved[BELIEVED.id][RECORDS[9][:4]]
    damaged = Peer(disk=again.disk)
    assert damaged.has(9)
    Line(line.peers[0], damaged).renew()
    assert damaged.has(30)


def test_the_file_is_verified_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer()
    peer.lists.take_file(BELIEVED.id, b"".join(RECORDS))
    assert peer.has(0)
    peer.lists.handle_timeout()
    assert 0 < len(peer.lists) == revocations._STEP < COUNT
    # Meanwhile it was appended to.
    peer.lists.take_file(BELIEVED.id, b"".join(RECORDS))
    while peer.lists.poll_timeout() == 0:
        peer.lists.handle_timeout()
    assert peer.has(COUNT)
    assert not peer.refusals()


def test_a_file_that_is_not_a_continuation_changes_nothing() -> None:
    peer = Peer()
    peer.read(RECORDS[:20])
    for records, why in (
        (RECORDS[:19], "lacks records"),
        ([], "lacks records"),
        ([*RECORDS[:10], *RECORDS[11:25]], "differs"),
        ([*RECORDS[:20], RECORDS[21]], "record 21: it has the number 22"),
        ([*RECORDS[:20], OTHERS[0]], "record 21"),
    ):
        peer.read(records)
        (found,) = peer.refusals()
        assert why in found
        assert peer.has(20)
    peer.read(OTHERS[:3], OTHER)
    assert "does not believe" in peer.refusals()[0]
    peer.read([*RECORDS[:21], RECORDS[21][:50]])
    assert not peer.refusals()
    assert peer.has(21)


def test_while_two_authorities_are_believed_so_are_the_lists_of_both() -> None:
    """Old: 10 records. The next authority signs 5 of them again, and 10 more."""
    line = Line(Peer(), Peer())
    root, child = line.peers
    line.renew()
    root.read(RECORDS[:10])
    line.run()
    for both, believing in (([BELIEVED, OTHER], root), ([BELIEVED, OTHER], child)):
        believing.lists.believe(both)
        line.renew()
        assert child.has(10)
    resigned = [signed_record(OTHER_AUTHORITY, RevokedToken(n, id, 0)) for n, id in enumerate(IDS[5:20], 1)]
    root.read(resigned, OTHER)
    line.run()
    assert root.has(20)
    assert child.has(20)
    late = Peer([BELIEVED, OTHER])
    Line(root, late).renew()
    assert late.has(20)
    for peer in (child, root):  # A child may finish before its parent.
        peer.lists.believe([OTHER])
        line.renew()
        assert [child.lists.are_revoked([id]) for id in IDS[5:21]] == [True] * 15 + [False]
        assert set(peer.disk.saved) == {OTHER.id}


def test_a_child_that_does_not_believe_an_authority_is_not_sent_its_list() -> None:
    parent, child = Peer([BELIEVED, OTHER]), Peer()
    line = Line(parent, child)
    line.renew()
    parent.read(OTHERS, OTHER)
    parent.read(RECORDS[:3])
    line.run()
    assert child.has(3)
    assert line.packets == 1


def test_what_was_saved_of_an_authority_that_is_not_believed_any_more_is_removed() -> None:
    peer = Peer([BELIEVED, OTHER])
    peer.read(OTHERS, OTHER)
    peer.read(RECORDS[:3])
    again = Peer([BELIEVED], peer.disk)
    assert again.has(3)
    assert set(again.disk.saved) == {BELIEVED.id}


def test_the_longest_list_reaches_a_node_that_has_nothing() -> None:
    """100,000 records. Their signatures are not verified here."""
    trusting = RevocationAuthority(BELIEVED.id, lambda content, signature: True)
    full = [n.to_bytes(4, "big") + n.to_bytes(16, "big") + bytes(72) for n in range(1, MOST_RECORDS + 1)]
    parent, child = Peer([trusting]), Peer([trusting])
    parent.read(full)
    line = Line(parent, child)
    line.renew()
    assert len(parent.lists) == len(child.lists) == MOST_RECORDS
    assert line.packets < MOST_RECORDS // PACKET_RECORDS * 1.1
    beyond = (MOST_RECORDS + 1).to_bytes(4, "big") + bytes(88)
    assert child.is_refused(pb.Revoked(authority=trusting.id, records=[beyond]))
    assert len(child.lists) == MOST_RECORDS
    assert child.lists.are_revoked([MOST_RECORDS.to_bytes(16, "big")])
    assert not child.lists.are_revoked([(MOST_RECORDS + 1).to_bytes(16, "big")])
    again = Peer([trusting], child.disk)
    assert len(again.lists) == MOST_RECORDS
