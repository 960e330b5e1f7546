"""Packets between child and parent count once, on their own link, and only with a proof (§5.5)."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.events import Diagnostics, LeaseLost, Unproved
from hbroker.protocol.hierarchy.channels import Channels
from hbroker.protocol.hierarchy.join_proofs import NONCE_PERIOD, Nonces
from hbroker.protocol.packets import Address, Body, Reason, address_of, body_of, pack
from tests.protocol.fake_network import DELAY, FakeLink
from tests.protocol.fakes import FakeCore
from tests.protocol.world import Running, World

KEY = b"a secret of enough bytes"
STRANGER: Address = ("10.6.6.6", 5_000)


class ParentAndChild:
    """A root, a child that holds `a`, and a record of all packets between them."""

    def __init__(self, key: bytes = KEY) -> None:
        self.world = World()
        self.recorded_packets: list[tuple[FakeLink, bool, bytes]] = []
        """For each packet: its link, whether the link's initiator sent it, and the packet."""
        network: Any = self.world.network
        carry = network.carry

        def listen(fake_link: FakeLink, sender: FakeCore, packet: bytes) -> None:
            self.recorded_packets.append((fake_link, sender is fake_link.initiator, packet))
            carry(fake_link, sender, packet)

        self.carry = carry
        network.carry = listen
        self.root = self.world.start_root(join_key=key)
        self.child = self.world.start_node("child", "a", join_key=key)
        self.world.advance(1)
        assert self.world.owners("a/x") == ["child"]

    def start(self, name: str, subtree: str, key: bytes = KEY) -> Running:
        running = self.world.start_node(name, subtree, join_key=key)
        self.world.advance(1)
        return running

    @property
    def sent_by_child(self) -> list[bytes]:
        return [packet for _, is_childs, packet in self.recorded_packets if is_childs]

    @property
    def link(self) -> FakeLink:
        """The link that the child opened."""
        core: Any = self.child.core
        found: FakeLink = next(c for c in core.links.values() if c.initiator is core)
        return found

    def stranger(self) -> FakeCore:
        core = self.world.network.attach(STRANGER)
        assert isinstance(core, FakeCore)
        return core

    def send_over_own_link(self, core: FakeCore, packets: list[bytes]) -> list[Body | None]:
        """Sends these packets over a new link of `core`. Returns the answers."""
        before = len(self.recorded_packets)
        link = core.connect(self.root.settings.listen)
        for packet in packets:
            core.send(link, packet)
        self.world.advance(0.5)
        return [
            body_of(p)
            for c, is_first, p in self.recorded_packets[before:]
            if c.initiator is core and not is_first
        ]

    def drops(self, running: Running) -> dict[str, int]:
        drops = running.node.status(self.world.network.now)["drops"]
        assert isinstance(drops, dict)
        return {k: n for k, n in drops.items() if k in ("unauthenticated", "replayed", "out_of_sequence")}

    def state(self) -> tuple[Any, ...]:
        """The delegation at the root, and the owner of the topic."""
        delegation = self.root.node.jurisdiction.delegation_of("a")
        assert delegation is not None
        return delegation.link, delegation.epoch, delegation.until, *self.world.owners("a/x")

    @property
    def epoch(self) -> int:
        epoch: int = self.state()[1]
        return epoch

    def renewal(self) -> bytes:
        """The last JOIN with which the child renewed its lease, as it was recorded."""
        for packet in reversed(self.sent_by_child):
            body = body_of(packet)
            inner = body_of(body.packet) if isinstance(body, pb.Authenticated) else body
            if isinstance(inner, pb.Join) and inner.subtree == "a" and inner.epoch:
                return packet
        raise AssertionError("the child has renewed")


def join_of_child(epoch: int) -> pb.Join:
    return pb.Join(request=7, node="child", subtree="a", epoch=epoch, address=address_of(("10.0.1.2", 7700)))


def forged(epoch: int) -> list[bytes]:
    """Packets that would hand the subtree back, with a message from nobody, if the parent believed them."""
    message = pb.Publish(topic="a/forged", payload=b"!", retain=True).SerializeToString()
    return [
        pack(join_of_child(epoch)),
        pack(pb.Leave(subtree="a", epoch=epoch)),
        pack(pb.Transfer(subtree="a", epoch=epoch, last=True, retained=[message])),
        pack(pb.Transfer(subtree="a", epoch=epoch, phase=pb.TRANSFER_PHASE_COMMIT)),
        pack(pb.Revoked(authority=bytes(16), first=1)),
    ]


def test_all_packets_between_child_and_parent_are_authenticated() -> None:
    pair = ParentAndChild()
    pair.world.advance(10)
    pair.world.leave("child")
    pair.world.advance(1)
    assert pair.world.owners("a/x") == ["root"]
    kinds = {type(body_of(packet)) for _, _, packet in pair.recorded_packets}
    assert kinds == {pb.Authenticated}
    assert not pair.drops(pair.root)


def test_without_a_key_packets_are_not_authenticated() -> None:
    pair = ParentAndChild(b"")
    assert pb.Authenticated not in {type(body_of(packet)) for _, _, packet in pair.recorded_packets}


@pytest.mark.parametrize("restarted", [None, "root", "child"])
def test_recorded_packets_are_refused_on_another_link(restarted: str | None) -> None:
    pair = ParentAndChild()
    pair.world.advance(5)
    recorded = pair.sent_by_child
    if restarted is not None:
        pair.world.restart(restarted)
        pair.world.advance(3)
        pair.root, pair.child = pair.world.nodes["root"], pair.world.nodes["child"]
    before = pair.state()
    answers = pair.send_over_own_link(pair.stranger(), recorded)
    after = pair.state()
    assert (after[0], after[1], after[3:]) == (before[0], before[1], before[3:])
    assert after[2] - before[2] <= timers.LEASE // timers.LEASE_RENEWALS + timers.SECOND
    assert {type(answer) for answer in answers} <= {pb.Authenticated}, "nothing but a nonce"
    assert pair.drops(pair.root)["unauthenticated"] >= len(recorded) - 2


def test_packets_of_the_child_that_are_replayed_on_its_own_link_are_dropped() -> None:
    pair = ParentAndChild()
    pair.world.advance(5)
    recorded, link = pair.sent_by_child, pair.link
    before = pair.state()
    for packet in recorded:
        pair.carry(link, link.initiator, packet)
    pair.world.advance(0.1)
    assert pair.state() == before
    assert pair.drops(pair.root) == {"replayed": len(recorded) - 1}, "all but the first, which asks"


def test_packets_of_the_parent_that_are_replayed_are_dropped() -> None:
    pair = ParentAndChild()
    recorded, link = [p for _, is_childs, p in pair.recorded_packets if not is_childs], pair.link
    for packet in recorded:
        pair.carry(link, link.acceptor, packet)
    pair.world.advance(0.1)
    assert pair.drops(pair.child) == {"replayed": len(recorded) - 1}
    assert pair.world.owners("a/x") == ["child"]


@pytest.mark.parametrize("is_own", [True, False])
def test_packets_without_a_proof_are_dropped(is_own: bool) -> None:
    """On a stranger's own link, and on the child's link, whose session id can be read on the wire."""
    pair = ParentAndChild()
    before = pair.state()
    if is_own:
        answers = pair.send_over_own_link(pair.stranger(), forged(pair.epoch))
        refusals = [answer.reason for answer in answers if isinstance(answer, pb.JoinAck)]
        assert refusals == [Reason.REASON_NOT_AUTHORIZED]
    else:
        for packet in forged(pair.epoch):
            pair.carry(pair.link, pair.link.initiator, packet)
        pair.world.advance(0.5)
    assert pair.state() == before
    assert pair.drops(pair.root) == {"unauthenticated": 5}
    assert "a/forged" not in pair.root.core.messages


def test_a_proof_does_not_count_for_another_packet() -> None:
    pair = ParentAndChild()
    pair.world.advance(5)
    message = body_of(pair.renewal())
    assert isinstance(message, pb.Authenticated)
    message.sequence += 1
    pair.carry(pair.link, pair.link.initiator, pack(message))
    message.sequence -= 1
    message.packet = pack(pb.Leave(subtree="a", epoch=pair.epoch))
    pair.carry(pair.link, pair.link.initiator, pack(message))
    pair.world.advance(0.1)
    assert pair.drops(pair.root) == {"unauthenticated": 2}
    assert pair.world.owners("a/x") == ["child"]


def test_a_missing_packet_ends_the_link_and_not_the_lease() -> None:
    """A forged packet can take the place of a genuine one in the link below (§3.3). The ends have to
    notice that the genuine one is lost."""
    pair = ParentAndChild()
    network: Any = pair.world.network
    link, record_and_carry = pair.link, network.carry
    lost: list[bytes] = []

    def lose_one(fake_link: FakeLink, sender: FakeCore, packet: bytes) -> None:
        if fake_link is link and sender is link.initiator and not lost:
            lost.append(packet)
        else:
            record_and_carry(fake_link, sender, packet)

    network.carry = lose_one
    pair.world.advance(30)
    assert lost
    assert pair.drops(pair.root) == {"out_of_sequence": 1}
    assert pair.world.owners("a/x") == ["child"]
    assert pair.link is not link
    assert not [n for n in pair.world.events("child") if isinstance(n, LeaseLost)]


def test_an_unproved_joinack_does_not_redirect_the_child_to_another_parent() -> None:
    pair = ParentAndChild()
    elsewhere = pb.Cut(subtree="a", node="evil", address=address_of(STRANGER), epoch=pair.epoch)
    told = pb.JoinAck(reason=Reason.REASON_HANDOVER, subtree="a", holder=elsewhere)
    pair.carry(pair.link, pair.link.acceptor, pack(told))
    refused = pb.Transfer(subtree="a", epoch=pair.epoch, last=True)
    pair.carry(pair.link, pair.link.acceptor, pack(refused))
    pair.world.advance(0.5)
    assert pair.drops(pair.child) == {"unauthenticated": 2}
    assert pair.child.node.claims.parent == "root"


def test_a_stranger_without_the_key_can_neither_grant_nor_end_a_lease() -> None:
    """The child does not simply believe the first answer to its JOIN, and no unproved answer ends its
    lease."""
    pair = ParentAndChild()
    pair.world.network.part(pair.root.settings.listen, pair.child.settings.listen)
    pair.world.advance(16)
    claim: Any = pair.child.node.claims.find("a")
    for reason in (Reason.REASON_SUCCESS, Reason.REASON_OVERLAP, Reason.REASON_NOT_AUTHORIZED):
        ack = pb.JoinAck(subtree="a", node="evil", address=address_of(STRANGER), reason=reason)
        ack.request = list(claim._join_requests._sent)[-1]
        event = ControlEvent(None, STRANGER, pack(ack), False)
        pair.child.node.handle_event(pair.world.network.now, event)
    assert pair.drops(pair.child) == {"unauthenticated": 3}
    assert pair.world.owners("a/x") == ["child"]


FORGED = [
    Reason.REASON_SUCCESS,
    Reason.REASON_OVERLAP,
    Reason.REASON_NOT_AUTHORIZED,
    Reason.REASON_PROTOCOL_ERROR,
]


def forge_answer(running: Running, reason: Reason = Reason.REASON_NOT_AUTHORIZED) -> None:
    """A stranger without the key, who read the JOIN on its way, answers it."""
    for claim in running.node.claims:
        for request in list(cast(Any, claim)._join_requests._sent):
            ack = pb.JoinAck(request=request, subtree=claim.subtree, node="evil", reason=reason)
            ack.address.CopyFrom(address_of(STRANGER))
            event = ControlEvent(None, running.settings.root or STRANGER, pack(ack), False)
            running.node.handle_event(running.core.network.now, event)


@pytest.mark.parametrize("reason", FORGED)
def test_a_forged_answer_neither_ends_a_join_nor_delays_it(reason: Reason) -> None:
    """The forged answer to each JOIN arrives before the true one."""
    pair = ParentAndChild()
    late = pair.world.start_node("late", "b", join_key=KEY)
    for _ in range(500):
        forge_answer(late, reason)
        pair.world.advance(DELAY[0] / timers.SECOND)
    assert pair.world.owners("b/x") == ["late"]
    assert pair.drops(late)["unauthenticated"] >= 2, "one for each of its claims at the least"


def test_many_forged_answers_delay_the_next_try_only_once() -> None:
    """Otherwise the forger could choose when a node joins."""
    pair = ParentAndChild()
    late = pair.world.start_node("late", "b", join_key=KEY)
    root, own = pair.root.settings.listen, late.settings.listen
    pair.world.network.part(root, own)
    for _ in range(8):
        forge_answer(late)
        pair.world.advance(0.5)
    pair.world.network.heal()
    for _ in range(8):
        forge_answer(late)
        pair.world.advance(0.5)
    assert pair.world.owners("b/x") == ["late"]


def test_a_node_with_another_key_reports_it_and_asks_seldom_until_the_keys_agree() -> None:
    """§5.5: the node cannot tell this case from a forged answer."""
    pair = ParentAndChild(b"quite another secret")
    late = pair.world.start_node("late", "b", join_key=KEY)
    pair.world.advance(60)
    assert not late.node.has_stopped
    said = [node_event for node_event in pair.world.events("late") if isinstance(node_event, Unproved)]
    assert {node_event.subtree for node_event in said} == {"$SYS/nodes/late"}
    assert 60 / 6 <= len(said) <= 60 / 3
    assert pair.drops(late)["unauthenticated"] == len(said)
    pair.world.kill("root")
    pair.world.start_root(join_key=KEY)
    pair.world.advance(6)
    assert pair.world.owners("b/x") == ["late"]


def test_a_join_outside_of_a_session_counts_only_for_its_sender_and_for_a_limited_time() -> None:
    pair = ParentAndChild()
    cast: list[tuple[Address, bytes]] = []
    core: Any = pair.world.network.attach(("10.0.9.9", 7700))
    honest = core.network.cast

    def listen(sender: FakeCore, address: Address, packet: bytes) -> None:
        cast.append((sender.address, packet))
        honest(sender, address, packet)

    core.network.cast = listen
    late = pair.start("late", "b")
    joins = [
        (at, body)
        for at, packet in cast
        if isinstance(body := body_of(packet), pb.Join) and body.subtree == "b" and body.credential
    ]
    assert joins, "it proved the key over a nonce"
    source, proved = joins[-1]
    assert source == late.settings.listen

    def answer(address: Address, join: pb.Join) -> pb.JoinAck:
        del cast[:]
        now = pair.world.network.now
        pair.root.node.handle_event(now, ControlEvent(None, address, pack(join), True))
        (ack,) = [body_of(packet) for _, packet in cast]
        assert isinstance(ack, pb.JoinAck)
        return ack

    assert not pair.drops(pair.root)
    assert answer(source, proved).reason == Reason.REASON_SUCCESS
    assert answer(STRANGER, proved).reason == Reason.REASON_NOT_AUTHORIZED
    altered = pb.Join()
    altered.CopyFrom(proved)
    altered.fenced = not altered.fenced
    assert answer(source, altered).reason == Reason.REASON_NOT_AUTHORIZED
    pair.world.advance(2 * NONCE_PERIOD / timers.SECOND)
    stale = answer(source, proved)
    assert stale.reason == Reason.REASON_NOT_AUTHORIZED
    assert stale.nonce != proved.nonce
    assert pair.drops(pair.root) == {"unauthenticated": 3}


def child_and_parent() -> tuple[Any, Diagnostics, Channels, Channels]:
    """Both ends, over one core, which hands each packet to the test."""
    core: Any = _Core()
    diagnostics = Diagnostics()
    child = Channels(core, KEY, STRANGER, Random(1), Nonces(b"1" * 16), diagnostics)
    parent = Channels(core, KEY, ("10.0.0.1", 7700), Random(2), Nonces(b"2" * 16), diagnostics)
    return core, diagnostics, child, parent


def test_a_proof_does_not_count_for_a_parent_at_another_address() -> None:
    """A relay between both ends cannot pass for one of them."""
    core, diagnostics, child, parent = child_and_parent()
    child.connect(("10.0.0.9", 7700))
    child.send(1, pack(join_of_child(0)))
    parent.open(1, core.take())
    child.open(1, core.take())
    assert parent.open(1, core.take()) is None
    assert diagnostics.counters == {"drop.unauthenticated": 1}


def test_a_packet_for_which_the_link_has_no_room_is_sent_again_with_the_same_sequence_number() -> None:
    core, _, child, parent = child_and_parent()
    child.connect(("10.0.0.1", 7700))
    assert child.send(1, pack(join_of_child(0)))
    parent.open(1, core.take())
    child.open(1, core.take())
    assert parent.open(1, core.take()) == pack(join_of_child(0))
    core.has_room = False
    assert not child.send(1, pack(join_of_child(1)))
    core.has_room = True
    assert child.send(1, pack(join_of_child(2)))
    assert parent.open(1, core.take()) == pack(join_of_child(2))


class _Core:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.has_room = True

    def connect(self, address: Address, token: bytes) -> int:
        return 1

    def send(self, link: int, packet: bytes) -> bool:
        if self.has_room:
            self.sent.append(packet)
        return self.has_room

    def take(self) -> pb.Authenticated:
        body = body_of(self.sent.pop(0))
        assert isinstance(body, pb.Authenticated)
        return body
